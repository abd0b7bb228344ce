/**
 * A live table and a chart in the cell of a notebook: an anywidget, whose records the kernel sends.
 *
 * The kernel has the connection, so the page needs neither the gateway's address nor a token. Each
 * message is the JSON text of events, which the replica of this client applies.
 *
 * @module
 */

import { parse } from "../client/json.js";
import { inOrder } from "../client/order.js";
import { Replica } from "../client/replica.js";

/** @typedef {import("../client/replica.js").Row} Row */

/**
 * @typedef {object} Model What is used of an anywidget's model.
 * @property {(name: string) => any} get
 * @property {(name: string, listener: (given: any) => void) => void} on
 * @property {(name: string, listener: (given: any) => void) => void} off
 * @property {(message: any) => void} send
 */

const LINES_MAX = 6; // more lines of a chart cannot be told apart
const POINTS_MAX = 240;
const FRESH_MS = 600;
const SIZE = { width: 640, height: 160 };
const COLORS = ["#1f77b4", "#d95f02", "#2ca02c", "#d62728", "#9467bd", "#8c564b"];
const SVG = "http://www.w3.org/2000/svg";

/**
 * Show what the kernel sends in an element; call the answer to stop.
 *
 * @param {{ model: Model, el: HTMLElement }} given
 * @returns {() => void}
 */
export function render({ model, el }) {
  const view = new View(model, el);
  const take = (/** @type {{ text: string }} */ { text }) => view.take(text);
  const say = () => view.say();
  model.on("msg:custom", take);
  model.on("change:status", say);
  // Last: before this there was no listener for what the kernel sends.
  model.send({ type: "begin" });
  say();
  return () => {
    model.off("msg:custom", take);
    model.off("change:status", say);
    view.stop();
  };
}

export default { render };

/** The element, its records and its chart. */
class View {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    this.#model = model;
    this.#title = el.appendChild(document.createElement("div"));
    this.#chart = el.appendChild(document.createElementNS(SVG, "svg"));
    this.#table = el.appendChild(document.createElement("table"));
    this.#chart.setAttribute("viewBox", `0 0 ${SIZE.width} ${SIZE.height}`);
    this.#chart.style.maxWidth = `${SIZE.width}px`;
    this.#table.style.fontVariantNumeric = "tabular-nums";
  }

  #model;
  #title;
  #chart;
  #table;
  #replica = new Replica(true);
  /** @type {Map<string, number[]>} Of each record: its last values of the chart's field. */
  #lines = new Map();
  /** @type {Map<string, number>} When each record changed. */
  #changedAt = new Map();
  #updates = 0;
  #frame = 0;

  /** @param {string} text */
  take(text) {
    for (const [name, fields] of parse(text)) {
      const { rows, changes } = this.#replica.take(name, fields);
      this.#updates += rows.length;
      for (const row of changes.changed) this.#changedAt.set(row.id, performance.now());
      for (const row of changes.removed) for (const map of [this.#changedAt, this.#lines]) map.delete(row.id);
    }
    this.#plot();
    // Several messages of one frame are drawn once.
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Show what the kernel says about the connection: old values must not look live. */
  say() {
    const status = this.#model.get("status");
    this.#table.style.opacity = status ? "0.5" : "1";
    this.#title.textContent = [this.#model.get("topic"), `${this.#updates} updates`, status].filter(Boolean).join(" · ");
  }

  stop() {
    cancelAnimationFrame(this.#frame);
  }

  #draw() {
    this.#frame = 0;
    this.say();
    const rows = inOrder(this.#replica.rows.values(), this.#model.get("order_by"));
    const shown = rows.slice(0, this.#model.get("rows_max"));
    this.#drawTable(shown, rows.length - shown.length);
    this.#drawChart(shown.slice(0, LINES_MAX));
  }

  /**
   * @param {Row[]} rows
   * @param {number} left
   */
  #drawTable(rows, left) {
    const chosen = this.#model.get("columns");
    const fields = chosen.length > 0 ? chosen : [...new Set(rows.flatMap(({ value }) => Object.keys(recordOf(value))))];
    const lines = [rowElement("th", ["key", ...fields])];
    const now = performance.now();
    for (const row of rows) {
      const record = recordOf(row.value);
      const line = rowElement("td", [(row.key ?? []).join(" "), ...fields.map((/** @type {string} */ name) => record[name])]);
      if (now - (this.#changedAt.get(row.id) ?? -Infinity) < FRESH_MS) line.style.fontWeight = "bold";
      lines.push(line);
    }
    if (left > 0) lines.push(rowElement("td", [`and ${left} more`]));
    this.#table.replaceChildren(...lines);
  }

  /** Add a point to the line of each record. */
  #plot() {
    const name = this.#model.get("chart");
    if (!name) return;
    for (const row of this.#replica.rows.values()) {
      const line = this.#lines.get(row.id) ?? [];
      line.push(Number(recordOf(row.value)[name]));
      if (line.length > POINTS_MAX) line.shift();
      this.#lines.set(row.id, line);
    }
  }

  /** @param {Row[]} rows */
  #drawChart(rows) {
    const lines = rows.map(({ id }) => this.#lines.get(id) ?? []);
    const points = lines.flat().filter(Number.isFinite);
    const [low, high] = [Math.min(...points), Math.max(...points)];
    const length = Math.max(2, ...lines.map((line) => line.length));
    const drawn = lines.map((line, at) => {
      const path = document.createElementNS(SVG, "polyline");
      // From the right: the newest points of all lines stand below each other.
      const places = line.map((value, index) => [
        SIZE.width * (1 - (line.length - 1 - index) / (length - 1)),
        high > low ? SIZE.height * (1 - (value - low) / (high - low)) : SIZE.height / 2,
      ]);
      path.setAttribute("points", places.filter((place) => place.every(Number.isFinite)).map((place) => place.join(",")).join(" "));
      path.setAttribute("fill", "none");
      path.setAttribute("stroke", COLORS[at]);
      return path;
    });
    const labels = points.length > 0 ? [labelOf(high, 12), labelOf(low, SIZE.height - 4)] : [];
    this.#chart.style.display = points.length > 0 ? "block" : "none";
    this.#chart.replaceChildren(...drawn, ...labels);
  }
}

/**
 * @param {number} value
 * @param {number} y
 */
function labelOf(value, y) {
  const label = document.createElementNS(SVG, "text");
  label.textContent = String(value);
  label.setAttribute("y", String(y));
  label.setAttribute("font-size", "11");
  label.setAttribute("fill", "currentColor");
  return label;
}

/**
 * @param {string} tag
 * @param {any[]} values
 */
function rowElement(tag, values) {
  const line = document.createElement("tr");
  for (const value of values) {
    const cell = line.appendChild(document.createElement(tag));
    // Text only: what a publisher sends is no HTML.
    cell.textContent = value === undefined ? "" : typeof value === "object" ? JSON.stringify(value, (_, each) => (typeof each === "bigint" ? String(each) : each)) : String(value);
    cell.style.textAlign = typeof value === "number" || typeof value === "bigint" ? "right" : "left";
  }
  return line;
}

/** @param {any} value */
function recordOf(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : { value };
}
