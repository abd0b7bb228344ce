// The table: one row a key, cells that show when they change. Values only ever become text nodes.

import { stringify } from "/client.js";
import { DECIMALS_MAX, decimalsOf, isAmountName, isTimeName, shown as textOf, timeOf } from "/static/console/kit/formats.js";

const ROWS_MAX = 500; // drawn at a time; all keys are held and can be found
const COLUMNS_MAX = 12;
const FLASH_MS = 700;
const LOG_ROWS = 40;

const isNumber = (value) => typeof value === "number" || typeof value === "bigint";
const still = matchMedia("(prefers-reduced-motion: reduce)");
const collator = new Intl.Collator("en", { numeric: true });

export class Rows {
  constructor({ head, body, caption }) {
    this.head = head;
    this.body = body;
    this.caption = caption;
    this.find = "";
    this.inView = new Set(); // the rows that can be seen: changes of others need no light
    this.watch = new IntersectionObserver((places) => {
      for (const { target, isIntersecting } of places) {
        if (isIntersecting) this.inView.add(target);
        else this.inView.delete(target);
      }
    });
    this.reset([], "");
  }

  // Begin anew for a topic whose SOW key is these field paths; without any it is a log.
  reset(keyPaths, topic) {
    this.topic = topic;
    this.keyPaths = keyPaths;
    this.isKeyed = keyPaths.length > 0;
    this.keyFields = new Set(keyPaths.map((path) => path.replace(/^\//, "")));
    this.columns = new Map(); // field -> { decimals, number, isTime }
    this.held = new Map(); // id -> { name, value }: all that the topic holds
    this.shown = new Map(); // id -> { row, cells, value }: what is drawn of it
    this.touched = new Set(); // ids with another value since the last drawing
    this.isReordered = true;
    this.logged = 0;
    this.body.replaceChildren();
    this.drawHead();
    this.drawCaption(0);
  }

  // The changes of a topic with a key.
  take({ added, changed, removed }) {
    for (const { id, key, value } of [...added, ...changed]) this.put(id, keyText(key), value);
    for (const { id } of removed) this.drop(id);
    this.wake();
  }

  // The messages of a topic without a key; the newest are held.
  log(rows) {
    for (const { value } of rows.slice(-LOG_ROWS)) {
      const number = String((this.logged += 1));
      this.put(number, number, value);
    }
    // A hidden page draws nothing, and must not hoard either.
    for (const id of [...this.held.keys()].slice(0, -LOG_ROWS)) this.drop(id);
    this.wake();
  }

  put(id, name, value) {
    this.isReordered ||= !this.held.has(id);
    const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
    this.held.set(id, { name, value: isObject ? value : { value } });
    this.touched.add(id);
  }

  drop(id) {
    this.held.delete(id);
    this.touched.delete(id);
    this.isReordered = true;
  }

  search(text) {
    this.find = text.trim().toLowerCase();
    this.isReordered = true;
    this.wake();
  }

  wake() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const before = this.columns.size;
    for (const id of this.touched) this.learn(this.held.get(id).value);
    if (this.columns.size !== before) this.forgetShown();
    if (this.isReordered) this.order();
    for (const id of this.touched) {
      const entry = this.shown.get(id);
      if (entry) this.update(entry, this.held.get(id).value);
    }
    this.touched.clear();
  }

  // Choose what is drawn: keys in their order, or the newest messages first.
  order() {
    this.isReordered = false;
    const found = [...this.held].filter(([, { name }]) => !this.find || name.toLowerCase().includes(this.find));
    if (this.isKeyed) found.sort(([, one], [, other]) => collator.compare(one.name, other.name));
    else found.reverse();
    const shown = new Map();
    for (const [id, record] of found.slice(0, ROWS_MAX)) shown.set(id, this.shown.get(id) ?? this.drawn(record));
    this.shown = shown;
    this.body.replaceChildren(...[...shown.values()].map(({ row }) => row));
    this.drawCaption(found.length);
  }

  // Draw every row anew: there is another column.
  forgetShown() {
    this.shown.clear();
    this.isReordered = true;
    this.drawHead();
  }

  learn(value) {
    for (const [field, cell] of Object.entries(value)) {
      if (this.isKeyed && this.keyFields.has(field)) continue;
      let column = this.columns.get(field);
      if (!column) {
        if (this.columns.size >= COLUMNS_MAX) continue;
        this.columns.set(field, (column = { decimals: 0, number: true, isTime: isTimeName(field), isQuiet: isTimeName(field) || isAmountName(field) }));
      }
      if (!isNumber(cell)) column.number = column.number && cell === null;
      else if (typeof cell === "number") column.decimals = Math.max(column.decimals, Math.min(DECIMALS_MAX, decimalsOf(cell)));
    }
  }

  drawn({ name, value }) {
    const row = document.createElement("tr");
    const title = document.createElement("th");
    title.scope = "row";
    title.textContent = name;
    row.append(title);
    const cells = [...this.columns].map(([field, column]) => {
      const cell = document.createElement("td");
      cell.className = column.number ? "number" : "";
      cell.textContent = format(value[field], column);
      return cell;
    });
    row.append(...cells);
    this.watch.observe(row);
    return { row, cells, value };
  }

  update(entry, value) {
    const isInView = this.inView.has(entry.row);
    let index = 0;
    for (const [field, column] of this.columns) {
      const cell = entry.cells[index++];
      const [was, now] = [entry.value[field], value[field]];
      if (was === now) continue;
      const text = format(now, column);
      if (cell.textContent === text) continue;
      cell.textContent = text;
      const moved = isNumber(was) && isNumber(now) ? (now > was ? "up" : "down") : "";
      // A time or an amount changes with each message, and whether it rose says little.
      cell.className = `${column.number ? "number" : ""} ${column.isQuiet ? "" : moved}`;
      if (isInView && !column.isQuiet) flash(cell, moved);
    }
    entry.value = value;
  }

  drawHead() {
    const titles = [[this.isKeyed ? this.keyPaths.map((path) => path.slice(1)).join(" · ") : "#", false]];
    for (const [field, column] of this.columns) titles.push([field, column.number]);
    this.head.replaceChildren(
      ...titles.map(([text, number]) => {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = text;
        if (number) cell.className = "number";
        return cell;
      }),
    );
  }

  drawCaption(found) {
    const count = this.held.size;
    const keys = `${count.toLocaleString("en")} ${count === 1 ? "key" : "keys"}`;
    const matching = this.find ? `, ${found.toLocaleString("en")} with “${this.find}”` : "";
    const more = found > ROWS_MAX ? `, the first ${ROWS_MAX} shown` : "";
    this.caption.textContent = this.isKeyed
      ? `${this.topic}: newest value of ${keys}${matching}${more}`
      : `${this.topic}: newest messages (the topic has no key)`;
  }
}

function keyText(key) {
  return Array.isArray(key) ? key.map(String).join(" · ") : String(key);
}

function format(value, column) {
  if (value === undefined || value === null) return "";
  if (isNumber(value) && column.isTime) return timeOf(value);
  if (isNumber(value)) return textOf(value, "auto", column.decimals);
  return typeof value === "string" ? value : stringify(value);
}

// A change lights up and fades: green for more, red for less, blue for anything else.
function flash(cell, moved) {
  if (still.matches || document.hidden) return;
  const style = getComputedStyle(document.documentElement);
  const from = { backgroundColor: style.getPropertyValue(moved ? `--${moved}-flash` : "--flash") };
  const to = { backgroundColor: "transparent" };
  if (moved) {
    from.color = style.getPropertyValue(`--${moved}`);
    to.color = style.getPropertyValue("--ink");
  }
  cell.animate([from, to], { duration: FLASH_MS, easing: "ease-out" });
}
