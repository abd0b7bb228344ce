/**
 * A table of any number of rows, of which only those in sight have elements.
 *
 * Rows that change while nobody sees them cost an entry in a map, so 10,000 of them may change with
 * each flush: 16 ms of CPU, where Tabulator 6.5 takes 770 ms (docs/console.md).
 *
 * @module
 */

import { calm, copy, flash, h, spark, write } from "./dom.js";
import { inert } from "./formats.js";
import { totalText, View } from "./view.js";

/** @typedef {import("./view.js").Column} Column */
/** @typedef {import("./view.js").Line} Line */

/**
 * @typedef {object} TableOptions
 * @property {string} label The accessible name.
 * @property {Column[]} [columns]
 * @property {(item: any) => void} [onOpen] Called for Enter and a click.
 * @property {() => void} [onSort] Called after the user has changed order or widths.
 * @property {(item: any) => string} [rowClass]
 * @property {string} [empty] The text of a table without rows.
 * @property {boolean} [flashes]
 */

const ROW_PX = 28; // as in the style sheet
const BEYOND = 6; // rows above and below the sight, so that a scroll does not show white
const REBUILD_MS_MIN = 500; // the order follows values, but not so often that rows cannot be read
const REBUILD_SHARE = 10; // and costs at most a tenth of the time
const WIDTHS = { number: 112, text: 150, spark: 110 };
const WIDTH_MIN = 56;
let tables = 0;

/** A virtual table. */
export class Table {
  /** @param {TableOptions} options */
  constructor(options) {
    this.#options = options;
    this.flashes = options.flashes ?? false;
    this.view.columns = options.columns ?? [];
    tables += 1;
    this.#name = `table${tables}`;
    this.#head = h("div", { class: "t-row t-head", role: "row", "aria-rowindex": 1 });
    this.#body = h("div", { class: "t-body", role: "rowgroup" });
    this.#foot = h("div", { class: "t-row t-foot", role: "row", hidden: true });
    this.#empty = h("p", { class: "hint", hidden: true }, options.empty ?? "Nothing here.");
    this.#grid = h(
      "div", { class: "table", role: "grid", tabindex: 0, "aria-label": options.label, onkeydown: (/** @type {KeyboardEvent} */ event) => this.#press(event) },
      h("div", { role: "rowgroup", class: "t-top" }, this.#head), this.#body, h("div", { role: "rowgroup", class: "t-bottom" }, this.#foot),
    );
    this.element = h("div", { class: "table-frame" }, this.#grid, this.#empty);
    this.#grid.addEventListener("scroll", () => this.#ask(), { passive: true });
    this.#watch = new ResizeObserver(() => this.#ask());
    this.#watch.observe(this.#grid);
    this.setColumns(this.view.columns);
  }

  view = new View();
  /** @type {ReadonlyMap<string, any>} */
  items = new Map();
  #options;
  #name;
  #head;
  #body;
  #foot;
  #empty;
  #grid;
  #watch;
  #isAsked = false;
  #isStale = true;
  #builtAt = 0;
  #cost = 0;
  /** The line that the keyboard or the mouse has chosen; -1 before. */
  #active = -1;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {Map<number, HTMLElement>} Elements by line. */
  #drawn = new Map();
  /** The number of the look of values, which changes with their formats. */
  #look = 0;
  /** @type {WeakMap<HTMLElement, { id: string, values: any[], look: number }>} What an element shows. */
  #shown = new WeakMap();

  /** @param {Column[]} columns */
  setColumns(columns) {
    // Pinned ones first: a column that stays in sight would hide those it slides over.
    this.view.columns = [...columns.filter(({ isPinned }) => isPinned), ...columns.filter(({ isPinned }) => !isPinned)];
    this.#drawHead();
    for (const row of this.#drawn.values()) row.remove();
    this.#drawn.clear();
    this.rebuild();
  }

  /** Make the lines anew with the next frame. */
  rebuild() {
    this.#isStale = true;
    this.#builtAt = 0;
    this.#ask();
  }

  /**
   * Show other items.
   *
   * @param {ReadonlyMap<string, any>} items Kept by reference: a live map is drawn as it is.
   */
  show(items) {
    this.items = items;
    this.rebuild();
  }

  /**
   * Draw what has changed in the items.
   *
   * @param {{ id: string }[]} [added]
   * @param {{ id: string }[]} [removed]
   */
  changed(added = [], removed = []) {
    if (this.view.dependsOnValues || removed.length > 0) this.#isStale = true;
    else if (!this.#isStale) for (const { id } of added) this.view.append(id);
    this.#ask();
  }

  /** Write all texts anew: a format has changed. */
  reformat() {
    this.#look += 1;
    this.#ask();
  }

  /** Stop drawing. */
  close() {
    this.#watch.disconnect();
    clearTimeout(this.#timer);
  }

  /** The values of all lines that are shown, with the titles: for CSV. */
  get values() {
    const items = this.view.lines.flatMap((line) => ("item" in line ? [this.items.get(line.item)] : []));
    const columns = this.view.columns.filter(({ kind }) => kind !== "spark");
    return [columns.map(({ title }) => title), ...items.map((item) => columns.map(({ of }) => of(item)))];
  }

  #ask() {
    if (this.#isAsked) return;
    this.#isAsked = true;
    requestAnimationFrame(() => {
      this.#isAsked = false;
      this.#draw();
    });
  }

  #draw() {
    const wait = this.#builtAt + Math.max(REBUILD_MS_MIN, REBUILD_SHARE * this.#cost) - performance.now();
    if (this.#isStale && (this.#builtAt === 0 || wait <= 0)) this.#build();
    else if (this.#isStale) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#ask(), wait);
    }
    const { lines } = this.view;
    this.#active = Math.min(this.#active, lines.length - 1);
    this.#grid.setAttribute("aria-rowcount", String(lines.length + 1));
    this.#body.style.height = `${lines.length * ROW_PX}px`;
    this.#empty.hidden = lines.length > 0;
    const first = Math.max(0, Math.floor(this.#grid.scrollTop / ROW_PX) - BEYOND);
    const last = Math.min(lines.length, Math.ceil((this.#grid.scrollTop + this.#grid.clientHeight) / ROW_PX) + BEYOND);
    const spare = [];
    for (const [at, row] of this.#drawn) {
      if (at >= first && at < last) continue;
      this.#drawn.delete(at);
      spare.push(row);
    }
    for (let at = first; at < last; at += 1) {
      let row = this.#drawn.get(at);
      if (!row) {
        row = spare.pop() ?? this.#newRow();
        row.style.top = `${at * ROW_PX}px`;
        row.setAttribute("aria-rowindex", String(at + 2));
        row.dataset.at = String(at);
        row.id = `${this.#name}-${at}`;
        this.#drawn.set(at, row);
      }
      this.#drawRow(row, lines[at], at);
    }
    for (const row of spare) row.remove();
    this.#drawFoot();
  }

  #build() {
    const began = performance.now();
    const chosen = this.view.lines[this.#active];
    this.view.build(this.items);
    // Who copies or opens the chosen row means that row, wherever it has moved to.
    if (chosen) this.#choose(this.view.placeOf(chosen, this.#active));
    this.#isStale = false;
    this.#builtAt = performance.now();
    this.#cost = this.#builtAt - began;
  }

  #drawHead() {
    const { columns, sorts } = this.view;
    this.#grid.style.setProperty("--columns", templateOf(columns));
    this.#grid.setAttribute("aria-colcount", String(columns.length));
    this.#head.replaceChildren(...columns.map((column, at) => {
      const place = sorts.findIndex(({ id }) => id === column.id);
      const order = place < 0 ? "none" : sorts[place].isDescending ? "descending" : "ascending";
      const mark = { none: "", ascending: "▲", descending: "▼" }[order] + (sorts.length > 1 && place >= 0 ? String(place + 1) : "");
      const name = h("button", { title: `Sort by ${column.title}; with Shift beside the others` }, column.title, " ", h("span", { "aria-hidden": "true" }, mark));
      name.addEventListener("click", (event) => this.#sort(column, event.shiftKey));
      const grip = h("span", { class: "t-grip", "aria-hidden": "true" });
      grip.addEventListener("pointerdown", (event) => this.#resize(event, column));
      const cell = h("div", { role: "columnheader", "aria-sort": order, "aria-colindex": at + 1, class: `t-cell ${column.kind ?? "text"}` }, name, grip);
      return this.#pinned(cell, at);
    }));
  }

  #drawFoot() {
    const { columns, totals, size } = this.view;
    this.#foot.hidden = totals.size === 0;
    if (this.#foot.hidden) return;
    this.#foot.replaceChildren(...columns.map((column, at) => {
      const text = column.total ? totalText(column, totals.get(column.id)) : at === 0 ? `${size} rows` : "";
      return this.#pinned(h("div", { role: "gridcell", "aria-colindex": at + 1, class: `t-cell ${column.kind ?? "text"}` }, text), at);
    }));
  }

  /**
   * @template {HTMLElement} Cell
   * @param {Cell} cell
   * @param {number} at
   */
  #pinned(cell, at) {
    const { columns } = this.view;
    if (!columns[at].isPinned) return cell;
    cell.classList.add("pinned");
    cell.style.left = `${columns.slice(0, at).reduce((sum, column) => sum + widthOf(column), 0)}px`;
    return cell;
  }

  #newRow() {
    const row = h("div", { class: "t-row", role: "row" });
    row.append(...this.view.columns.map((column, at) => {
      const cell = h("div", { role: "gridcell", "aria-colindex": at + 1, class: `t-cell ${column.kind ?? "text"}` });
      return this.#pinned(cell, at);
    }));
    row.addEventListener("click", () => {
      this.#move(Number(row.dataset.at));
      this.#open();
    });
    this.#body.append(row);
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Line} line
   * @param {number} at
   */
  #drawRow(row, line, at) {
    const item = "item" in line ? this.items.get(line.item) : null;
    const id = "item" in line ? line.item : ` ${line.group}`;
    const before = this.#shown.get(row);
    const isSame = before?.id === id;
    const { columns } = this.view;
    const values = "item" in line ? columns.map(({ of }) => (item ? of(item) : null)) : [];
    const extra = "item" in line ? (item ? this.#options.rowClass?.(item) ?? "" : "gone") : "t-group";
    const isActive = at === this.#active;
    const look = `t-row ${extra}${isActive ? " active" : ""}`;
    // An attribute that is written anew is styled anew, though it says the same.
    if (row.className !== look) row.className = look;
    if (row.ariaSelected !== String(isActive)) row.ariaSelected = String(isActive);
    columns.forEach((column, index) => {
      const cell = /** @type {HTMLElement} */ (row.children[index]);
      if ("group" in line) {
        const total = column.total ? totalText(column, line.totals.get(column.id)) : "";
        const sign = this.view.closed.has(line.group) ? "▸" : "▾";
        write(cell, index === 0 ? `${sign} ${line.group} (${line.size})` : total);
        return;
      }
      const hasChanged = !isSame || !Object.is(before.values[index], values[index]);
      if (hasChanged || before.look !== this.#look) {
        this.#drawCell(cell, column, values[index], item);
        if (isSame && hasChanged && this.flashes && !column.isQuiet) flash(cell, before.values[index], values[index]);
        else if (!isSame) calm(cell);
      }
    });
    this.#shown.set(row, { id, values, look: this.#look });
  }

  /**
   * @param {HTMLElement} cell
   * @param {Column} column
   * @param {any} value
   * @param {any} item
   */
  #drawCell(cell, column, value, item) {
    if (column.kind === "spark") {
      cell.replaceChildren(...(value ? [spark(value)] : []));
      return;
    }
    const text = column.text ? column.text(value, item) : value === null || value === undefined ? "" : String(value);
    write(cell, text);
    const title = text.length > 18 ? text : "";
    if (cell.title !== title) cell.title = title;
    if (column.class) cell.className = `t-cell ${column.kind ?? "text"} ${column.isPinned ? "pinned" : ""} ${column.class(value, item)}`;
  }

  /**
   * @param {Column} column
   * @param {boolean} isAdded
   */
  #sort(column, isAdded) {
    const held = this.view.sorts.find(({ id }) => id === column.id);
    const rest = isAdded ? this.view.sorts.filter(({ id }) => id !== column.id) : [];
    // Ascending, descending, as they came.
    const next = !held ? [{ id: column.id, isDescending: false }] : held.isDescending ? [] : [{ id: column.id, isDescending: true }];
    this.view.sorts = [...rest, ...next];
    this.#drawHead();
    this.rebuild();
    this.#options.onSort?.();
  }

  /**
   * @param {PointerEvent} event
   * @param {Column} column
   */
  #resize(event, column) {
    event.preventDefault();
    const start = event.clientX - widthOf(column);
    const move = (/** @type {PointerEvent} */ moved) => {
      column.width = Math.max(WIDTH_MIN, moved.clientX - start);
      this.#grid.style.setProperty("--columns", templateOf(this.view.columns));
    };
    const stop = () => {
      removeEventListener("pointermove", move);
      this.setColumns(this.view.columns);
      this.#options.onSort?.();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop, { once: true });
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    if (event.target !== this.#grid) return;
    const page = Math.max(1, Math.floor(this.#grid.clientHeight / ROW_PX) - 2);
    const last = this.view.lines.length - 1;
    const to = { ArrowDown: this.#active + 1, ArrowUp: this.#active - 1, PageDown: this.#active + page, PageUp: this.#active - page, Home: 0, End: last }[event.key];
    if (to !== undefined) this.#move(Math.max(0, Math.min(last, to)));
    else if (event.key === "Enter") this.#open();
    else if ((event.ctrlKey || event.metaKey) && event.key === "c" && String(getSelection()) === "") this.#copy();
    else return;
    event.preventDefault();
  }

  /** @param {number} at */
  #move(at) {
    this.#choose(at);
    const top = at * ROW_PX;
    const sight = this.#grid.clientHeight - 3 * ROW_PX; // without head and foot
    if (top < this.#grid.scrollTop) this.#grid.scrollTop = top;
    else if (top > this.#grid.scrollTop + sight) this.#grid.scrollTop = top - sight;
    this.#ask();
  }

  /** @param {number} at */
  #choose(at) {
    if (this.#active !== at) this.#grid.setAttribute("aria-activedescendant", `${this.#name}-${at}`);
    this.#active = at;
  }

  #open() {
    const line = this.view.lines[this.#active];
    if (!line) return;
    if ("group" in line) {
      if (!this.view.closed.delete(line.group)) this.view.closed.add(line.group);
      this.rebuild();
    } else if (this.items.has(line.item)) this.#options.onOpen?.(this.items.get(line.item));
  }

  #copy() {
    const line = this.view.lines[this.#active];
    if (!line || !("item" in line)) return;
    const item = this.items.get(line.item);
    const cell = (/** @type {Column} */ { of, text }) => inert(of(item), text ? text(of(item), item) : String(of(item) ?? ""));
    // One value is one cell, whatever a publisher put into it.
    void copy(this.view.columns.filter(({ kind }) => kind !== "spark").map((each) => cell(each).replaceAll(/[\t\r\n]+/g, " ")).join("\t"));
  }
}

/** @param {Column[]} columns Their tracks; the last one is the rest of the line. */
function templateOf(columns) {
  return [...columns.map((column) => `${widthOf(column)}px`), "minmax(0, 1fr)"].join(" ");
}

/** @param {Column} column */
function widthOf(column) {
  return column.width ?? WIDTHS[column.kind ?? "text"];
}
