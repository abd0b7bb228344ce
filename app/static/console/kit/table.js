/**
 * A table of any number of rows, of which only those in sight have elements.
 *
 * Rows that change while nobody sees them cost an entry in a map, so 10,000 of them may change with
 * each flush: 16 ms of CPU, where Tabulator 6.5 takes 770 ms (docs/console.md).
 *
 * @module
 */

import { asserted, calm, copy, flash, h, spark, write } from "./dom.js";
import { inert } from "./formats.js";
import { totalText, View } from "./view.js";
import { cutMiddle, widthsOf } from "./widths.js";

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
const TICK_MS = 1_000; // ages follow the clock, and not the stream
const FONT_PX = 13; // as in the style sheet
const PADDING_PX = 22; // of a cell, with its border
const SIGN_PX = 14; // of the direction in which a number has changed
const SORT_PX = 22; // of the mark in the head of a sorted column
const SPARK_PX = 110;
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
    this.#empty = h("p", { class: "hint", hidden: true }, "Reading…");
    this.#grid = h(
      "div", { class: "table", role: "grid", tabindex: 0, "aria-label": options.label, onkeydown: (/** @type {KeyboardEvent} */ event) => this.#press(event) },
      h("div", { role: "rowgroup", class: "t-top" }, this.#head), this.#body, h("div", { role: "rowgroup", class: "t-bottom" }, this.#foot),
    );
    this.element = h("div", { class: "table-frame" }, this.#grid, this.#empty);
    this.#grid.addEventListener("scroll", () => this.#ask(), { passive: true });
    this.#watch = new ResizeObserver(() => {
      this.#isFitted = false;
      this.#ask();
    });
    this.#watch.observe(this.#grid);
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
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
  #ticking;
  #isAsked = false;
  #isTicked = false;
  /** True once it is known what there is: until then an empty table says nothing. */
  #isKnown = false;
  /** @type {Map<string, number>} The widest text of each column in px, of all that were drawn. */
  #contents = new Map();
  /** @type {number[]} */
  #widths = [];
  #isFitted = false;
  #measure = measureOf();
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
    const kept = new Set(columns.map(({ id }) => id));
    for (const id of this.#contents.keys()) if (!kept.has(id)) this.#contents.delete(id);
    this.#isFitted = false;
    this.#widths = [];
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
   * @param {boolean} [isKnown] False while more is on its way: an empty table then says nothing.
   */
  show(items, isKnown = true) {
    this.items = items;
    this.setKnown(isKnown);
    this.rebuild();
  }

  /** @param {boolean} isKnown */
  setKnown(isKnown) {
    if (isKnown === this.#isKnown) return;
    this.#isKnown = isKnown;
    this.#empty.replaceChildren(...(isKnown ? asserted(this.#options.empty ?? "Nothing here.", "Not known without the gateway.") : ["Reading…"]));
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
    clearInterval(this.#ticking);
  }

  /** The values of all lines that are shown, with the titles: for CSV. */
  get values() {
    const items = this.view.lines.flatMap((line) => ("item" in line ? [this.items.get(line.item)] : []));
    const columns = this.view.columns.filter(({ kind }) => kind !== "spark");
    return [columns.map(({ title }) => title), ...items.map((item) => columns.map(({ of }) => of(item)))];
  }

  /** Write what follows the clock anew, of the rows in sight. */
  #tick() {
    this.#isTicked = true;
    this.#ask();
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
    }
    for (const row of spare) row.remove();
    for (let at = first; at < last; at += 1) this.#drawRow(/** @type {HTMLElement} */ (this.#drawn.get(at)), lines[at], at);
    this.#drawFoot();
    this.#isTicked = false;
    if (this.#isFitted || !this.#fit()) return;
    // With other widths other names are cut.
    this.#look += 1;
    for (let at = first; at < last; at += 1) this.#drawRow(/** @type {HTMLElement} */ (this.#drawn.get(at)), lines[at], at);
  }

  /** Make the columns as wide as what is in them; return true if any width has changed. */
  #fit() {
    this.#isFitted = true;
    const { columns } = this.view;
    const contents = columns.map(({ id, kind, width, isPinned }) => ({ px: this.#contents.get(id) ?? 0, isNumber: kind === "number" || kind === "spark", width, isPinned }));
    const widths = widthsOf(contents, this.#grid.clientWidth);
    if (widths.length === this.#widths.length && widths.every((width, at) => width === this.#widths[at])) return false;
    this.#widths = widths;
    this.#grid.style.setProperty("--columns", [...widths.map((width) => `${width}px`), "minmax(0, 1fr)"].join(" "));
    let left = 0;
    widths.forEach((width, at) => {
      if (columns[at].isPinned) this.#grid.style.setProperty(`--left-${at}`, `${left}px`);
      left += width;
    });
    return true;
  }

  /**
   * Note how wide a text is.
   *
   * @param {Column} column
   * @param {string} text
   * @param {number} more In px.
   */
  #note(column, text, more) {
    // Digits are equally wide, and commas narrower: nothing has to be measured.
    const px = Math.ceil(column.kind === "number" ? text.length * this.#measure("0") : this.#measure(text)) + PADDING_PX + more;
    if (px > (this.#contents.get(column.id) ?? 0)) {
      this.#contents.set(column.id, px);
      this.#isFitted = false;
    }
    return px;
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
    this.#grid.setAttribute("aria-colcount", String(columns.length));
    // A row without cells is none; before its first record a table has no columns.
    this.#head.hidden = columns.length === 0;
    this.#head.replaceChildren(...columns.map((column, at) => {
      const place = sorts.findIndex(({ id }) => id === column.id);
      const order = place < 0 ? "none" : sorts[place].isDescending ? "descending" : "ascending";
      const mark = { none: "", ascending: "▲", descending: "▼" }[order] + (sorts.length > 1 && place >= 0 ? String(place + 1) : "");
      if (column.kind === "spark") this.#contents.set(column.id, SPARK_PX);
      else this.#note({ ...column, kind: "text" }, column.title, SORT_PX);
      const name = h("button", { title: `Sort by ${column.title}; with Shift beside the others` }, column.title, " ", h("span", { "aria-hidden": "true" }, mark));
      name.addEventListener("click", (event) => this.#sort(column, event.shiftKey));
      const grip = h("span", { class: "t-grip", "aria-hidden": "true" });
      grip.addEventListener("pointerdown", (event) => this.#resize(event, column));
      grip.addEventListener("dblclick", () => this.#resized(column, undefined));
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
      if (column.total) this.#note(column, text, text.length); // in bold
      return this.#pinned(h("div", { role: "gridcell", "aria-colindex": at + 1, class: `t-cell ${column.kind ?? "text"}` }, text), at);
    }));
  }

  /**
   * @template {HTMLElement} Cell
   * @param {Cell} cell
   * @param {number} at
   */
  #pinned(cell, at) {
    if (!this.view.columns[at].isPinned) return cell;
    cell.classList.add("pinned");
    cell.style.left = `var(--left-${at})`;
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
        if (total) this.#note(column, total, total.length);
        write(cell, index === 0 ? `${sign} ${line.group} (${line.size})` : total);
        return;
      }
      const hasChanged = !isSame || !Object.is(before.values[index], values[index]);
      if (hasChanged || before.look !== this.#look || (column.ticks && this.#isTicked)) {
        this.#drawCell(cell, index, values[index], item);
        if (isSame && hasChanged && this.flashes && !column.isQuiet) flash(cell, before.values[index], values[index]);
        else if (!isSame) calm(cell);
      }
    });
    this.#shown.set(row, { id, values, look: this.#look });
  }

  /**
   * @param {HTMLElement} cell
   * @param {number} index
   * @param {any} value
   * @param {any} item
   */
  #drawCell(cell, index, value, item) {
    const column = this.view.columns[index];
    if (column.kind === "spark") {
      cell.replaceChildren(...(value ? [spark(value)] : []));
      return;
    }
    const text = column.text ? column.text(value, item) : value === null || value === undefined ? "" : String(value);
    const px = this.#note(column, text, column.kind === "number" && this.flashes && !column.isQuiet ? SIGN_PX : 0);
    const room = this.#widths[index] ?? px;
    const isCut = px > room;
    // What is pinned names the row, and has to differ from the others.
    write(cell, isCut && column.isPinned ? cutMiddle(text, Math.floor((text.length * (room - PADDING_PX)) / (px - PADDING_PX))) : text);
    const title = isCut ? text : "";
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
    const start = event.clientX - this.#widths[this.view.columns.indexOf(column)];
    const move = (/** @type {PointerEvent} */ moved) => this.#resized(column, Math.max(WIDTH_MIN, moved.clientX - start));
    const stop = () => {
      removeEventListener("pointermove", move);
      this.#options.onSort?.();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop, { once: true });
  }

  /**
   * @param {Column} column
   * @param {number | undefined} width That of its content without one.
   */
  #resized(column, width) {
    column.width = width;
    this.#isFitted = false;
    this.#ask();
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

/**
 * Return what measures texts as the cells show them.
 *
 * @returns {(text: string) => number}
 */
function measureOf() {
  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  const { fontFamily } = getComputedStyle(document.body);
  pen.font = `${FONT_PX}px ${fontFamily}`;
  const zero = pen.measureText("0").width;
  return (text) => (text === "0" ? zero : pen.measureText(text).width);
}
