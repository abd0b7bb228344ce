// The table: one row a key, cells that show when they change. Values only ever become text nodes.

const ROWS_MAX = 500;
const COLUMNS_MAX = 12;
const DECIMALS_MAX = 4;
const FLASH_MS = 700;
const LOG_ROWS = 40;

const isNumber = (value) => typeof value === "number";
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Rows {
  constructor({ head, body, caption }) {
    this.head = head;
    this.body = body;
    this.caption = caption;
    this.find = "";
    this.reset([], "");
  }

  // Begin anew for a topic whose SOW key is these field paths; without any it is a log.
  reset(keyPaths, topic) {
    this.topic = topic;
    this.keyPaths = keyPaths;
    this.keyed = keyPaths.length > 0;
    this.keyFields = new Set(keyPaths.map((path) => path.replace(/^\//, "")));
    this.columns = new Map(); // field -> { decimals, number }
    this.clear();
  }

  clear() {
    this.rows = new Map(); // key text -> { row, cells, value }
    this.pending = new Map(); // key text -> value
    this.logged = 0;
    this.body.replaceChildren();
    this.drawHead();
    this.drawCaption();
  }

  take(rows) {
    for (const { key, value } of rows) {
      const name = this.keyed ? keyText(key) : String(++this.logged);
      this.pending.set(name, value !== null && typeof value === "object" && !Array.isArray(value) ? value : { value });
    }
    if (!this.keyed) this.forgetOld(); // a hidden page draws nothing, and must not hoard either
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  forgetOld() {
    for (const name of this.pending.keys()) {
      if (this.pending.size <= LOG_ROWS) return;
      this.pending.delete(name);
    }
  }

  search(text) {
    this.find = text.trim().toLowerCase();
    for (const [name, entry] of this.rows) entry.row.hidden = !this.matches(name);
    this.drawCaption();
  }

  matches(name) {
    return !this.find || name.toLowerCase().includes(this.find);
  }

  draw() {
    this.frame = 0;
    const before = this.columns.size;
    for (const value of this.pending.values()) this.learn(value);
    if (this.columns.size !== before) this.rebuild();
    let added = false;
    for (const [name, value] of this.pending) {
      const entry = this.rows.get(name);
      if (entry) this.update(entry, value);
      else if (!this.keyed || this.rows.size < ROWS_MAX) {
        this.add(name, value);
        added = true;
      } else this.rows.set(name, { row: document.createElement("tr"), cells: [], value });
    }
    this.pending.clear();
    if (added) this.order();
    this.drawCaption();
  }

  learn(value) {
    for (const [field, cell] of Object.entries(value)) {
      if (this.keyed && this.keyFields.has(field)) continue;
      let column = this.columns.get(field);
      if (!column) {
        if (this.columns.size >= COLUMNS_MAX) continue;
        this.columns.set(field, (column = { decimals: 0, number: true }));
      }
      if (!isNumber(cell)) column.number = column.number && cell === null;
      else if (!Number.isInteger(cell)) {
        const digits = (String(cell).split(".")[1] ?? "").length;
        column.decimals = Math.max(column.decimals, Math.min(DECIMALS_MAX, digits));
      }
    }
  }

  add(name, value) {
    const row = document.createElement("tr");
    const title = document.createElement("th");
    title.scope = "row";
    title.textContent = name;
    row.append(title);
    row.hidden = !this.matches(name);
    const entry = { row, cells: [], value };
    for (const [field, column] of this.columns) {
      const cell = document.createElement("td");
      cell.className = column.number ? "number" : "";
      cell.textContent = format(value[field], column);
      entry.cells.push(cell);
      row.append(cell);
    }
    this.rows.set(name, entry);
  }

  update(entry, value) {
    let index = 0;
    for (const [field, column] of this.columns) {
      const cell = entry.cells[index++];
      if (!cell) break;
      const [was, now] = [entry.value[field], value[field]];
      if (was === now) continue;
      const text = format(now, column);
      if (cell.textContent === text) continue;
      cell.textContent = text;
      const moved = isNumber(was) && isNumber(now) ? (now > was ? "up" : "down") : "";
      cell.className = column.number ? "number" : "";
      flash(cell, moved);
    }
    entry.value = value;
  }

  // Keyed rows by key; a log shows its newest messages first.
  order() {
    const names = [...this.rows.keys()];
    if (this.keyed) names.sort(compare);
    else {
      for (const name of names.splice(0, Math.max(0, names.length - LOG_ROWS))) this.rows.delete(name);
      names.reverse();
    }
    const shown = names.map((name) => this.rows.get(name)).filter((entry) => entry.row.firstChild);
    this.body.replaceChildren(...shown.map((entry) => entry.row));
  }

  rebuild() {
    const values = [...this.rows].map(([name, entry]) => [name, entry.value]);
    this.rows.clear();
    for (const [name, value] of values) this.add(name, value);
    this.drawHead();
    this.order();
  }

  drawHead() {
    const titles = [[this.keyed ? this.keyPaths.map((path) => path.slice(1)).join(" · ") : "#", false]];
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

  drawCaption() {
    const count = this.rows.size;
    const more = this.keyed && count > ROWS_MAX ? `, the first ${ROWS_MAX} shown` : "";
    const hidden = this.find ? `, those with “${this.find}” shown` : "";
    this.caption.textContent = this.keyed
      ? `${this.topic}: newest value of ${count.toLocaleString("en")} keys${more}${hidden}`
      : `${this.topic}: newest messages (the topic has no key)`;
  }
}

function keyText(key) {
  return Array.isArray(key) ? key.map((field) => (typeof field === "string" ? field : JSON.stringify(field))).join(" · ") : JSON.stringify(key);
}

const collator = new Intl.Collator("en", { numeric: true });
const compare = (a, b) => collator.compare(a, b);

function format(value, column) {
  if (value === undefined || value === null) return "";
  if (isNumber(value)) {
    return value.toLocaleString("en", {
      minimumFractionDigits: column.decimals,
      maximumFractionDigits: column.decimals,
      useGrouping: "min2",
    });
  }
  return typeof value === "string" ? value : JSON.stringify(value);
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
