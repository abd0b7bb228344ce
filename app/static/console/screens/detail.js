/**
 * The detail of a record: the whole message, its history from the journal, and the trace of its key.
 *
 * @module
 */

import { copy, h, terms } from "../kit/dom.js";
import { clock, pretty, shown, things, writerOf } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { Table } from "../kit/table.js";

/** @typedef {import("../kit/link.js").Link} Link */
/** @typedef {import("/client/replica.js").Row} Row */

const HISTORY_MAX = 2_000; // of one key; a screen shows some twenty
const TRACE_LINES_MAX = 300;
let closeLast = () => {};

/**
 * Show the detail of a row beside the screen.
 *
 * @param {Link} link
 * @param {Row} row
 * @param {{ interval: string }} panel
 */
export function openDetail(link, row, { interval }) {
  closeLast();
  const leaving = new AbortController();
  const close = () => {
    leaving.abort();
    drawer.remove();
    back?.focus();
  };
  const back = /** @type {HTMLElement | null} */ (document.activeElement);
  const name = row.key === null ? row.bookmark : row.key.map((part) => shown(part, "text")).join(" · ");
  const value = h("pre", { class: "code", tabindex: 0, "aria-label": "Message" }, pretty(row.value));
  const facts = h("dl", { class: "facts" });
  const drawFacts = (/** @type {Row} */ shownRow) => facts.replaceChildren(...terms({
    topic: shownRow.topic, bookmark: shownRow.bookmark, published: shownRow.timestamp ? clock(shownRow.timestamp) : "–",
  }));
  drawFacts(row);
  const drawer = h(
    "aside", { class: "drawer", "aria-label": `Detail of ${name}`, tabindex: -1, onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && close() },
    h("header", {}, h("h2", {}, name), h("span", {},
      h("button", { onclick: () => void copy(value.textContent ?? "") }, "Copy"), " ",
      h("button", { class: "quiet", "aria-label": "Close", onclick: close }, "✕"))),
    facts, value,
  );
  document.body.append(drawer);
  addEventListener("hashchange", close, { once: true, signal: leaving.signal });
  closeLast = close;
  drawer.focus();
  if (row.key !== null) void addKey();

  async function addKey() {
    const status = h("p", { class: "caption" }, "reading the journal…");
    drawer.append(h("h3", {}, "History"), status);
    try {
      const { key } = await link.gateway.topic(row.topic);
      const filter = filterOf(key, row.key ?? []);
      if (leaving.signal.aborted) return;
      drawer.append(history(link, row, filter, status, leaving.signal, (newest) => {
        value.textContent = pretty(newest.value);
        drawFacts(newest);
      }));
      if (link.may("observe")) drawer.append(...trace(link, row, filter, interval, leaving.signal));
    } catch (error) {
      status.textContent = reasonOf(error);
    }
  }
}

/**
 * @param {Link} link
 * @param {Row} row
 * @param {string} filter
 * @param {HTMLElement} status
 * @param {AbortSignal} signal
 * @param {(newest: Row) => void} take
 */
function history(link, row, filter, status, signal, take) {
  /** @type {Map<string, Row>} The newest first, as a reader wants it. */
  let items = new Map();
  const names = Object.entries(row.value ?? {}).filter(([, each]) => each === null || typeof each !== "object").map(([name]) => name);
  const table = new Table({
    label: "History", empty: "The journal has no message of this key.",
    columns: [
      { id: "at", title: "published", of: (each) => each.timestamp, text: (at) => (at ? clock(at) : ""), isPinned: true },
      { id: "op", title: "op", of: (each) => each.reason ?? each.op },
      ...names.map((name) => ({
        id: name, title: name, kind: /** @type {"number" | "text"} */ (typeof row.value[name] === "number" ? "number" : "text"),
        of: (/** @type {Row} */ each) => each.value?.[name], text: writerOf(name, [row.value[name]]),
      })),
    ],
  });
  // The gateway's own replay: it filters in the journal, and goes on live where that ends.
  const subscription = link.gateway.subscribe(row.topic, {
    interval: "none", filter, bookmark: "epoch", options: "bookmark_not_found=epoch,timestamp", command: "subscribe", removals: false,
  });
  subscription.granted.catch((error) => (status.textContent = reasonOf(error)));
  subscription.addEventListener("rows", ({ rows }) => {
    const newest = [...rows].reverse().map((each) => /** @type {[string, Row]} */ ([each.bookmark, { ...each, id: each.bookmark }]));
    items = new Map([...newest, ...items].slice(0, HISTORY_MAX));
    table.show(items);
    status.textContent = `${things(items.size, "message")} of this key, the newest first`;
    take(rows[rows.length - 1]);
  });
  signal.addEventListener("abort", () => {
    void subscription.close();
    table.close();
  });
  return table.element;
}

/**
 * @param {Link} link
 * @param {Row} row
 * @param {string} filter
 * @param {string} interval
 * @param {AbortSignal} signal
 */
function trace(link, row, filter, interval, signal) {
  const lines = h("pre", { class: "code", tabindex: 0, "aria-label": "Trace" });
  const begin = h("button", { onclick: () => void run() }, `Trace this key at ${interval}`);
  const run = async () => {
    begin.disabled = true;
    try {
      const options = interval === "none" ? "" : `conflation=${interval}`;
      const opened = await link.ask("POST", "/v1/sessions", { json: { subscriptions: [{ topic: row.topic, options, filter }] } });
      signal.addEventListener("abort", () => void link.ask("DELETE", `/v1/sessions/${opened.session}`).catch(() => {}));
      // A trace is of a reader: without one the gateway decides nothing, and the trace ends.
      await new Promise((reads, fails) => {
        link.follow(opened.events, signal, (name) => name === "hello" && reads(name)).then(() => fails(new Error("The stream has ended.")), fails);
      });
      await traceInto(link, `/v1/sessions/${opened.session}/subscriptions/${opened.subscriptions[0].sub}/trace`, lines, signal);
    } catch (error) {
      if (!signal.aborted) lines.append(`${reasonOf(error)}\n`);
    }
    begin.disabled = false;
  };
  return [h("h3", {}, "Trace"), h("p", {}, begin), lines];
}

/**
 * Write the decisions of a trace, the newest first, until it ends.
 *
 * @param {Link} link
 * @param {string} path
 * @param {HTMLElement} lines
 * @param {AbortSignal} signal
 */
export function traceInto(link, path, lines, signal) {
  return link.follow(path, signal, (name, fields) => {
    if (name === "call" && !["published", "taken", "begun"].includes(fields.call)) return;
    lines.prepend(`${lineOf(name, fields)}\n`);
    while (lines.childNodes.length > TRACE_LINES_MAX) lines.lastChild?.remove();
  });
}

/**
 * @param {string} name
 * @param {any} fields
 */
function lineOf(name, fields) {
  const at = `${String(Math.round(fields.at_ms)).padStart(7)} ms`;
  if (name === "end") return `${at}  ends: ${fields.reason}`;
  const { decision, call, key, offset, earlier, messages, rows, due_ms: due, why } = fields;
  const parts = [
    key === undefined || key === null ? "" : shown(key), offset === undefined ? "" : `#${offset}`, earlier === undefined ? "" : `in place of #${earlier}`,
    typeof messages === "number" ? things(messages, "message") : Array.isArray(messages) ? things(messages.length, "message") : "",
    typeof rows === "number" ? things(rows, "row") : Array.isArray(rows) ? things(rows.length, "row") : "",
    due === undefined || due === null ? "" : `due at ${Math.round(due)} ms`, why ? `(${why})` : "",
  ];
  return `${at}  ${String(decision ?? call).padEnd(10)} ${parts.filter(Boolean).join("  ")}`;
}

/**
 * Return the filter that one key matches.
 *
 * @param {string[]} paths
 * @param {any[]} key
 */
export function filterOf(paths, key) {
  return paths.map((path, at) => {
    const value = key[at];
    if (value === null || value === undefined) return `${path} IS NULL`;
    if (typeof value !== "string") return `${path} = ${String(value).toUpperCase() === "TRUE" || value === false ? String(value).toUpperCase() : value}`;
    return `${path} = '${value.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  }).join(" AND ");
}
