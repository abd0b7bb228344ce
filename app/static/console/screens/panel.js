/**
 * One panel of the blotter: the records of a topic or a pattern as a live table.
 *
 * @module
 */

import { choice, download, field, h, pointsOf } from "../kit/dom.js";
import { age, clock, csv, DECIMALS_MAX, decimalsOf, isQuietAtFirst, isTimeName, shown, things } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { Table } from "../kit/table.js";
import { chooseColumns } from "./columns.js";
import { openDetail } from "./detail.js";

/** @typedef {import("../kit/formats.js").Format} Format */
/** @typedef {import("../kit/link.js").Link} Link */
/** @typedef {import("../kit/view.js").Column} Column */
/** @typedef {import("../kit/view.js").Sort} Sort */
/** @typedef {import("../kit/view.js").Total} Total */
/** @typedef {import("/client/replica.js").Row} Row */

/**
 * What is kept of a column in a layout.
 *
 * @typedef {object} ColumnLayout
 * @property {string} path
 * @property {boolean} [isHidden]
 * @property {boolean} [isPinned]
 * @property {Format} [format]
 * @property {Total} [total]
 * @property {number} [width]
 * @property {boolean} [isQuiet] Its changes do not flash; by default those of times and amounts.
 */

/**
 * What is kept of a panel in a layout and in a link.
 *
 * @typedef {object} Layout
 * @property {string} topic
 * @property {string} interval
 * @property {string} [filter]
 * @property {ColumnLayout[]} [columns]
 * @property {Sort[]} [sorts]
 * @property {string} [group]
 * @property {string} [trend] The field of which each row has a line.
 * @property {boolean} [isCalm] Nothing flashes.
 */

export const INTERVALS = ["none", "100ms", "250ms", "500ms", "1s", "2s", "5s", "auto"];
const STALE_MS = 30_000;
const LOG_MAX = 1_000; // messages of a topic without key, the newest
const TREND_POINTS = 60;
const SAMPLE_ROWS = 200; // rows that are looked at for their fields
const FIELDS_MAX = 60;
const RATE_OVER = 6; // seconds
const TOPIC = "topic"; // no path of a field: those begin with a slash
const KEY = "key";
const AGE = "age";

/** A live table with its controls. */
export class Panel {
  /**
   * @param {Link} link
   * @param {Layout} layout
   * @param {{ topics: string[], onChange: () => void, onClose: (panel: Panel) => void }} blotter
   */
  constructor(link, layout, blotter) {
    this.#link = link;
    this.#blotter = blotter;
    this.layout = layout;
    this.#table = new Table({
      label: "Records", empty: "No records yet.", flashes: !layout.isCalm,
      onOpen: (row) => this.#open(row),
      onSort: () => this.#keep(),
      rowClass: (row) => (row.timestamp !== undefined && link.connection.ageOf(row.timestamp) > STALE_MS ? "stale" : ""),
    });
    this.#table.view.sorts = layout.sorts ?? [];
    this.#table.view.groupBy = layout.group ?? "";
    this.#group = choice([["", "no grouping"]], layout.group ?? "", { onchange: () => this.#regroup() });
    this.element = h("section", { class: "panel" }, this.#controls(), this.#caption, this.#table.element);
    this.#timer = setInterval(() => this.#second(), 1_000);
    this.#subscribe();
  }

  #link;
  #blotter;
  #table;
  #group;
  #timer;
  #caption = h("p", { class: "caption" });
  /** @type {import("/client.js").Subscription | undefined} */
  #subscription;
  /** @type {Map<string, Row>} Of a topic without key. */
  #log = new Map();
  /** @type {Map<string, number[]>} */
  #trends = new Map();
  /** @type {Map<string, any>} A value of each field that was seen. */
  #fields = new Map();
  /** @type {Map<string, number>} The most decimals of a field that were seen: ragged numbers cannot be compared. */
  #digits = new Map();
  #updates = 0;
  /** @type {number[]} The updates of each of the last seconds: an interval longer than one sends by fits. */
  #seconds = [];
  #granted = "";

  close() {
    clearInterval(this.#timer);
    void this.#subscription?.close();
    this.#table.close();
  }

  #controls() {
    const { layout } = this;
    const topic = h("input", { value: layout.topic, list: "topics", spellcheck: "false", autocomplete: "off" });
    topic.addEventListener("change", () => this.#set({ topic: topic.value.trim(), columns: undefined, sorts: [], group: "", trend: "" }, true));
    const interval = choice(INTERVALS, layout.interval);
    interval.addEventListener("change", () => this.#set({ interval: interval.value }, true));
    const filter = h("input", { value: layout.filter ?? "", placeholder: "/price > 100", spellcheck: "false", autocomplete: "off" });
    filter.addEventListener("change", () => this.#set({ filter: filter.value.trim() }, true));
    const find = h("input", { type: "search", placeholder: "in these rows", autocomplete: "off" });
    find.addEventListener("input", () => {
      this.#table.view.find = find.value;
      this.#table.rebuild();
    });
    return h(
      "div", { class: "toolbar" },
      field("Topic or pattern", topic), field("Interval", interval), h("label", { class: "field grow" }, h("span", {}, "Filter"), filter),
      field("Find", find), field("Group by", this.#group),
      h("button", { onclick: () => this.#chooseColumns() }, "Columns"),
      h("button", { onclick: () => this.#save() }, "CSV"),
      h("button", { class: "quiet", "aria-label": "Close this panel", onclick: () => this.#blotter.onClose(this) }, "✕"),
    );
  }

  /**
   * @param {Partial<Layout>} change
   * @param {boolean} isOther True for another subscription.
   */
  #set(change, isOther) {
    Object.assign(this.layout, change);
    if (change.topic !== undefined) {
      Object.assign(this.#table.view, { sorts: [], groupBy: "", closed: new Set() });
      this.#fields.clear();
      this.#digits.clear();
      this.#table.setColumns([]);
    }
    if (isOther) this.#subscribe();
    this.#blotter.onChange();
  }

  #subscribe() {
    void this.#subscription?.close();
    const { topic, interval, filter } = this.layout;
    // What tells two panels of one topic apart.
    this.element.setAttribute("aria-label", [`${topic} at ${interval}`, filter].filter(Boolean).join(", "));
    this.#log = new Map();
    this.#trends.clear();
    this.#seconds = [];
    this.#granted = "";
    if (!topic) {
      this.#say("Choose a topic.", false);
      return;
    }
    const wish = { interval, filter: filter || undefined, options: "timestamp" };
    const subscription = this.#link.gateway.subscribe(topic, wish);
    this.#subscription = subscription;
    this.#table.show(subscription.rows, false);
    subscription.ready.then(() => subscription === this.#subscription && this.#table.setKnown(true), () => {});
    subscription.granted.then(
      (granted) => (this.#granted = granted.options ?? things(granted.topics?.length ?? 0, "topic")),
      (error) => subscription === this.#subscription && this.#refused(error),
    );
    subscription.addEventListener("change", (changes) => this.#take(changes));
    subscription.addEventListener("rows", ({ rows }) => this.#takeMessages(rows));
    subscription.addEventListener("ended", ({ detail }) => {
      if (detail.reason !== "REQUESTED" && !detail.error) this.#say(`Ended: ${detail.reason.toLowerCase().replaceAll("_", " ")}`, true);
    });
  }

  /** @param {any} error */
  #refused(error) {
    const isKeyless = /no key, so an interval/.test(error.message ?? "");
    // Nothing to conflate by: every message is what such a topic has to show.
    if (isKeyless && this.layout.interval !== "none") this.#set({ interval: "none" }, true);
    else this.#say(reasonOf(error) + (error.position === undefined ? "" : ` (at character ${error.position + 1})`), true);
  }

  /** @param {{ added: Row[], changed: Row[], removed: Row[] }} changes */
  #take({ added, changed, removed }) {
    if (this.#log.size > 0) return;
    this.#learn(added.length > 0 ? added : changed.slice(0, 20));
    if (this.layout.trend) for (const row of [...added, ...changed]) this.#trace(row, this.layout.trend);
    for (const { id } of removed) this.#trends.delete(id);
    this.#table.changed(added, removed);
  }

  /** @param {Row[]} rows */
  #takeMessages(rows) {
    this.#updates += rows.length;
    const messages = rows.filter(({ key, op }) => key === null && op === "publish");
    if (messages.length === 0) return;
    if (this.#log.size === 0) this.#table.show(this.#log);
    for (const row of messages) this.#log.set(row.bookmark, { ...row, id: row.bookmark });
    const surplus = this.#log.size - LOG_MAX;
    for (const id of [...this.#log.keys()].slice(0, Math.max(0, surplus))) this.#log.delete(id);
    this.#learn(messages);
    this.#table.rebuild();
  }

  /**
   * @param {Row} row
   * @param {string} path
   */
  #trace(row, path) {
    const value = valueAt(row.value, path);
    if (typeof value !== "number") return;
    const numbers = this.#trends.get(row.id) ?? [];
    numbers.push(value);
    if (numbers.length > TREND_POINTS) numbers.shift();
    this.#trends.set(row.id, numbers);
  }

  /**
   * Notice fields that no row had before.
   *
   * @param {Row[]} rows
   */
  #learn(rows) {
    const before = this.#fields.size;
    let isFiner = false;
    for (const { value } of rows.slice(0, SAMPLE_ROWS)) {
      for (const [path, member] of fieldsOf(value)) {
        if (this.#fields.size < FIELDS_MAX && (this.#fields.get(path) ?? null) === null) this.#fields.set(path, member);
        const digits = typeof member === "number" ? Math.min(DECIMALS_MAX, decimalsOf(member)) : -1;
        if (digits <= (this.#digits.get(path) ?? -1)) continue;
        this.#digits.set(path, digits);
        isFiner = true;
      }
    }
    if (this.#fields.size !== before) this.#arrange();
    else if (isFiner) this.#table.reformat();
  }

  /** The columns that exist, in the order of the layout. */
  get columns() {
    const held = this.layout.columns ?? [];
    const known = new Set(held.map(({ path }) => path));
    const others = [TOPIC, KEY, ...this.#fields.keys(), AGE].filter((path) => !known.has(path));
    return [...held, ...others.map((path) => this.#first(path))];
  }

  /**
   * Return how a column is shown at first.
   *
   * @param {string} path
   * @returns {ColumnLayout}
   */
  #first(path) {
    const row = this.#table.items.values().next().value;
    // The fields of the key stay in sight; a column of the key itself would only repeat them.
    const keys = (row?.key ?? []).map((/** @type {any} */ part) => [...this.#fields.keys()].find((each) => valueAt(row.value, each) === part));
    const isPattern = /[*>]/.test(this.layout.topic);
    // Topics of a pattern have keys of their own, so that only the key itself names each row.
    const isInValue = !isPattern && (this.#log.size > 0 || keys.every((/** @type {any} */ each) => each !== undefined));
    if (path === TOPIC) return { path, isPinned: true, isHidden: !isPattern };
    if (path === KEY) return { path, isPinned: true, isHidden: isInValue };
    const isTime = isTimeName(path) && typeof this.#fields.get(path) === "number";
    return { path, isPinned: isInValue && keys.includes(path), format: isTime ? "time" : "auto" };
  }

  #arrange() {
    const columns = this.columns.filter(({ isHidden }) => !isHidden).map((layout) => this.#column(layout));
    const { trend } = this.layout;
    if (trend) {
      columns.push({ id: "trend", title: `${titleOf(trend)} trend`, kind: "spark", isQuiet: true, of: (row) => pointsOf(this.#trends.get(row.id) ?? []) });
    }
    const options = [["", "no grouping"], ...this.columns.filter(({ path }) => path !== AGE).map(({ path }) => [path, titleOf(path)])];
    this.#group.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
    this.#group.value = this.#table.view.groupBy;
    this.#table.setColumns(columns);
  }

  /** @param {ColumnLayout} layout @returns {Column} */
  #column({ path, isPinned, isQuiet, format = "auto", total, width }) {
    const common = { id: path, title: titleOf(path), isPinned, total, width };
    if (path === TOPIC) return { ...common, of: (row) => row.topic };
    if (path === KEY) return { ...common, of: (row) => keyText(row) };
    if (path === AGE) {
      return { ...common, kind: "number", isQuiet: true, ticks: true, of: (row) => row.timestamp, text: (at) => (at ? age(this.#link.connection.ageOf(at)) : "") };
    }
    const isNumber = ["number", "bigint"].includes(typeof this.#fields.get(path));
    return { ...common, kind: isNumber ? "number" : "text", isQuiet: isQuiet ?? isQuietAtFirst(path, format), of: (row) => valueAt(row.value, path), text: (value) => shown(value, format, this.#digits.get(path)) };
  }

  #regroup() {
    this.#table.view.groupBy = this.#group.value;
    this.#table.view.closed.clear();
    this.#table.rebuild();
    this.#keep();
  }

  /** Keep what the user did to the table. */
  #keep() {
    const widths = new Map(this.#table.view.columns.map(({ id, width }) => [id, width]));
    this.layout.sorts = this.#table.view.sorts;
    this.layout.group = this.#table.view.groupBy;
    if (this.layout.columns) for (const column of this.layout.columns) column.width = widths.get(column.path) ?? column.width;
    this.#blotter.onChange();
  }

  async #chooseColumns() {
    const numbers = [...this.#fields].filter(([, value]) => typeof value === "number").map(([path]) => path);
    const chosen = await chooseColumns(this.columns, { trend: this.layout.trend ?? "", isCalm: this.layout.isCalm ?? false, numbers, titleOf });
    Object.assign(this.layout, chosen);
    this.#table.flashes = !chosen.isCalm;
    this.#arrange();
    this.#keep();
  }

  #save() {
    const name = `${this.layout.topic.replace(/[^\w.-]/g, "_")}.csv`;
    download(name, csv(this.#table.values), "text/csv");
  }

  /** @param {Row} row */
  #open(row) {
    openDetail(this.#link, row, { interval: this.layout.interval });
  }

  #second() {
    if (!this.#granted) return;
    const { isLive, since } = this.#link.connection;
    if (this.#subscription?.state === "lost" && isLive) {
      this.#caption.textContent = `Old rows: ${this.#subscription.reason}`;
      this.#caption.classList.add("problem");
      return;
    }
    this.#seconds = [...this.#seconds, this.#updates].slice(-RATE_OVER);
    this.#updates = 0;
    const rate = this.#seconds.reduce((sum, each) => sum + each, 0) / this.#seconds.length;
    // Without the gateway nobody knows whether there are more rows, or how many change.
    const state = isLive ? `${things(Math.round(rate), "row")}/s · ${clock(Date.now()).slice(0, 8)}` : `as of ${clock(since).slice(0, 8)}`;
    this.#say(`${things(this.#table.items.size, "row")} · ${state} · granted ${this.#granted}`, false);
  }

  /**
   * @param {string} text
   * @param {boolean} isProblem
   */
  #say(text, isProblem) {
    this.#caption.textContent = text;
    this.#caption.title = text;
    this.#caption.classList.toggle("problem", isProblem);
    if (isProblem) this.#granted = "";
  }
}

/**
 * Yield the fields of a value with their paths: `/price`, `/quote/bid`.
 *
 * @param {any} value
 * @param {string} [before]
 * @returns {Generator<[string, any]>}
 */
function* fieldsOf(value, before = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    yield [before || "/", value];
    return;
  }
  // Two levels are columns; what is deeper is for the detail of a row.
  for (const [name, member] of Object.entries(value)) {
    const path = `${before}/${name}`;
    if (before === "" && member !== null && typeof member === "object" && !Array.isArray(member)) yield* fieldsOf(member, path);
    else yield [path, member];
  }
}

/**
 * Return the value at a path of `fieldsOf`.
 *
 * @param {any} value
 * @param {string} path
 */
export function valueAt(value, path) {
  if (path === "/") return value;
  const end = path.indexOf("/", 1);
  const member = value?.[end < 0 ? path.slice(1) : path.slice(1, end)];
  // A name with a slash has no second level to look into.
  return end < 0 ? member : member?.[path.slice(end + 1)] ?? value?.[path.slice(1)];
}

/** @param {string} path */
function titleOf(path) {
  return path === "/" ? "value" : path.replace(/^\//, "");
}

/** @param {Row} row */
function keyText(row) {
  return (row.key ?? [row.bookmark]).map((part) => shown(part, "text")).join(" · ");
}
