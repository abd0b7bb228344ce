/**
 * Topics: definitions, figures and last values; made, edited and deleted.
 *
 * @module
 */

import { bar, card, confirmed, field, h, terms, toast, watched } from "../kit/dom.js";
import { age, bytes, count, pretty, things, writerOf } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { Table } from "../kit/table.js";
import { treeOf } from "../kit/tree.js";
import { openDetail } from "./detail.js";
import { equal, isObject } from "/client/json.js";
import { parse, Problem } from "/client.js";

/** @typedef {import("../kit/link.js").Link} Link */

const LIST_MS = 4_000;
const LIST_LARGE_MS = 20_000;
const OFTEN_TOPICS_MAX = 1_000;
const OPEN_TOPICS_MAX = 100; // more are shown as branches first
const INDENT = "\u2003"; // a space as wide as a letter, which is not joined with its neighbors
const FIGURES_MS = 1_000;
const LAST_VALUES = 50;
const GONE = 404;
const CHANGED_MEANWHILE = 412;
/** No definition has this tag, so a request with it changes nothing: the gateway reads the definition first. */
const NO_TAG = '"dry-run"';
const FIELDS = [
  "key", "conflation", "options", "placement", "match", "merge", "type", "retain", "values_only", "priority", "expiration", "history", "schema",
  "tidy_on_unsubscribe", "source", "description",
];

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const place = h("div", { class: "panel", hidden: true });
  const number = /** @type {const} */ ("number");
  const table = new Table({
    label: "Topics", empty: "No topics yet: make the first.", onOpen: (line) => (line.branch ? toggle(line) : void choose(line.topic)), onSort: () => draw(),
    rowClass: ({ branch, state }) => (branch ? "t-branch" : state === "served" ? "" : "stale"),
    columns: [
      { id: "topic", title: "topic", of: (it) => it.topic ?? it.branch, text: (_, it) => (it ? nameOf(it) : ""), isPinned: true },
      { id: "rate", title: "in/s", kind: number, of: (it) => it.rate, text: count },
      { id: "keys", title: "keys", kind: number, of: (it) => it.keys, text: count },
      { id: "age", title: "age", kind: number, ticks: true, of: (it) => it.last_ms, text: (at, it) => ageText(at, it) },
      { id: "subscriptions", title: "subscriptions", kind: number, of: (it) => it.subscriptions, text: (value) => (value === undefined ? "" : count(value)) },
      { id: "state", title: "state", of: (it) => it.state },
      { id: "key", title: "key", of: (it) => (it.key ?? []).join(" ") },
      { id: "conflation", title: "full queue", of: (it) => it.conflation },
      { id: "source", title: "from", of: (it) => it.source?.topic ?? "" },
      { id: "type", title: "type", of: (it) => it.type },
      { id: "description", title: "description", of: (it) => it.description },
    ],
  });
  // Between two lists a busy topic gets no older; without the gateway every one does.
  const ageText = (/** @type {number | null} */ at, /** @type {any} */ it) => (at ? age(link.connection.isLive ? it?.age_ms : link.connection.ageOf(at)) : "–");
  const find = h("input", { type: "search", placeholder: "part of a name" });
  /** @type {Map<string, any>} */
  let topics = new Map();
  let listedAt = 0;
  /** @type {Set<string>} Branches that are not as they are at first. */
  const toggled = new Set();
  const isOpen = (/** @type {string} */ branch) => (topics.size <= OPEN_TOPICS_MAX) !== toggled.has(branch);
  const toggle = (/** @type {{ branch: string }} */ { branch }) => {
    if (!toggled.delete(branch)) toggled.add(branch);
    draw();
  };
  const draw = () => {
    table.view.find = find.value;
    // What is found or sorted stands in one order, across all branches.
    if (find.value || table.view.sorts.length > 0) table.show(topics);
    else table.show(new Map(treeOf(topics.values(), isOpen).map(itemOf)));
  };
  find.addEventListener("input", draw);
  /** @type {TopicCard | null} */
  let chosen = null;
  const choose = async (/** @type {string} */ topic) => {
    chosen?.close();
    chosen = new TopicCard(link, topic, list, leave);
    place.hidden = false;
    place.replaceChildren(chosen.element);
    if (topic) remember({ topic });
  };
  const leave = () => {
    chosen?.close();
    chosen = null;
    place.hidden = true;
    remember({});
  };
  async function list() {
    const at = performance.now();
    // Ten thousand topics with their figures are 5 MB.
    if (topics.size > OFTEN_TOPICS_MAX && at - listedAt < LIST_LARGE_MS) return;
    const before = topics;
    /** @type {[string, any][]} */
    const found = [];
    for (let path = "/v1/topics?limit=1000"; path; ) {
      const page = await link.ask("GET", path);
      for (const each of page.topics) {
        const grown = each.messages_in - before.get(each.topic)?.messages_in;
        const lastMs = each.journal?.last_ms ?? null;
        found.push([each.topic, { ...each, rate: (1_000 * grown) / (at - listedAt), last_ms: lastMs, age_ms: lastMs && link.connection.ageOf(lastMs) }]);
      }
      path = page.next;
    }
    topics = new Map(found);
    listedAt = at;
    draw();
  }
  const panel = h("div", { class: "panel" });
  const stop = watched(panel, LIST_MS, list);
  const add = h("p", { class: "buttons" }, h("button", { onclick: () => void choose("") }, "New topic"));
  bar(add, link.obstacle("admin"));
  panel.append(h("div", { class: "toolbar" }, field("Find", find), add), table.element);
  element.append(h("div", { class: "split" }, panel, place));
  const asked = query.get("topic");
  if (asked) void choose(asked);
  return () => {
    void stop();
    chosen?.close();
    table.close();
  };
}

/**
 * Return a line of the tree as an item of the table, with its id.
 *
 * @param {import("../kit/tree.js").BranchLine | import("../kit/tree.js").LeafLine} line
 * @returns {[string, any]}
 */
function itemOf(line) {
  return "leaf" in line ? [line.leaf.topic, { ...line.leaf, label: line.label, depth: line.depth }] : [`${line.branch}>`, line];
}

/**
 * Return the name of a line, moved in by its depth.
 *
 * @param {any} line
 */
function nameOf({ branch, topic, label = topic, depth = 0, isOpen, size }) {
  const sign = branch ? (isOpen ? "▾ " : "▸ ") : "";
  return `${INDENT.repeat(depth)}${sign}${label}${branch ? ` (${size})` : ""}`;
}

/** One topic, or a new one. */
class TopicCard {
  /**
   * @param {Link} link
   * @param {string} topic Empty for a new one.
   * @param {() => Promise<void>} changed
   * @param {() => void} leave
   */
  constructor(link, topic, changed, leave) {
    this.#link = link;
    this.#topic = topic;
    this.#changed = changed;
    this.#values = new Table({ label: "Last values", empty: "No records.", onOpen: (row) => openDetail(link, row, { interval: "500ms" }) });
    const name = h("input", { value: topic, required: true, spellcheck: "false", placeholder: "prices.eu" });
    name.addEventListener("input", () => (this.#topic = name.value.trim()));
    const isNew = topic === "";
    this.#isNew = isNew;
    const obstacle = link.obstacle("admin");
    const buttons = h("p", { class: "buttons" },
      h("button", { onclick: () => void this.#try(() => this.#check()) }, "Check without saving"),
      h("button", { class: "primary", onclick: () => void this.#try(() => this.#save()) }, isNew ? "Make the topic" : "Save"),
      isNew ? null : h("button", { class: "danger", onclick: () => void this.#try(() => this.#delete()) }, "Delete"));
    bar(buttons, obstacle);
    // To read and to copy, it stays of use.
    this.#text.readOnly = obstacle !== "";
    this.element = h("div", { class: "panel" },
      h("p", { class: "buttons end" }, h("button", { class: "quiet", "aria-label": "Back to the list", onclick: leave }, "✕")),
      isNew ? null : card(topic, this.#facts, h("p", { class: "buttons" }, h("a", { href: `#/blotter?topic=${encodeURIComponent(topic)}` }, "blotter"),
        h("a", { href: `#/playground?topic=${encodeURIComponent(topic)}` }, "playground"), h("a", { href: `#/charts?topic=${encodeURIComponent(topic)}` }, "charts"), h("a", { href: `#/publish?topic=${encodeURIComponent(topic)}` }, "publish"))),
      card(isNew ? "New topic" : "Definition", isNew ? field("Name", name) : null, h("label", { class: "field" }, h("span", {}, "Definition, as JSON"), this.#text), buttons, this.#verdict),
      isNew ? null : card("Last values", this.#values.element));
    if (isNew) {
      this.#text.value = pretty({ key: ["/id"], description: "" });
      name.focus();
    } else {
      this.#begin();
      void this.#load();
    }
  }

  #link;
  #topic;
  #isNew;
  #changed;
  #values;
  #stop = () => Promise.resolve();
  #facts = h("dl", { class: "facts" });
  #text = h("textarea", { rows: 15, spellcheck: "false" });
  #verdict = h("div", { role: "status" });
  #etag = "";
  /** @type {Record<string, any>} */
  #definition = {};
  #before = { messages: 0, at: 0 };

  close() {
    void this.#stop();
    this.#values.close();
  }

  #begin() {
    this.#stop = watched(this.element, FIGURES_MS, () => this.#look());
  }

  get #path() {
    return `/v1/topics/${encodeURIComponent(this.#topic)}`;
  }

  /** Read the definition with its tag, and the last values. */
  async #load() {
    try {
      const { answer, text } = await this.#link.transport.read("GET", this.#path);
      const found = this.#link.transport.parsed(text);
      this.#etag = answer.headers.get("ETag") ?? "";
      this.#definition = Object.fromEntries(FIELDS.filter((name) => name in found).map((name) => [name, found[name]]));
      this.#text.value = pretty(this.#definition);
      if (found.state === "served" && found.retain && found.type === "json") await this.#readValues();
    } catch (error) {
      this.#say(reasonOf(error), "problem");
    }
  }

  async #readValues() {
    const { text } = await this.#link.transport.read("GET", `${this.#path}/sow`, { query: { top_n: LAST_VALUES, format: "envelope" } });
    const rows = text.split("\n").filter(Boolean).map((line) => this.#link.transport.parsed(line));
    const names = [...new Set(rows.flatMap(({ value }) => (isObject(value) ? Object.keys(value) : [])))];
    this.#values.setColumns(names.map((name) => ({
      id: name, title: name, kind: typeof rows[0].value?.[name] === "number" ? "number" : "text",
      of: (row) => row.value?.[name], text: writerOf(name, rows.map(({ value }) => value?.[name])),
    })));
    this.#values.show(new Map(rows.map((row) => [row.bookmark, { ...row, id: row.bookmark }])));
  }

  async #look() {
    let now;
    try {
      now = await this.#link.gateway.topic(this.#topic);
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== GONE) throw error;
      void this.#stop();
      this.#facts.replaceChildren(h("dt", {}, "gone"), h("dd", { class: "problem" }, reasonOf(error)));
      return;
    }
    const at = performance.now();
    const rate = this.#before.at > 0 ? (1_000 * (now.messages_in - this.#before.messages)) / (at - this.#before.at) : NaN;
    this.#before = { messages: now.messages_in, at };
    const facts = {
      state: now.reason ? `${now.state}: ${now.reason}` : now.state,
      published: `${things(now.messages_in, "message")}, ${bytes(now.bytes_in)}, ${count(rate)}/s now`,
      records: `${count(now.keys)}, ${bytes(now.bytes)}`,
      subscriptions: `${things(now.subscriptions, "subscription")} in ${things(now.lanes, "lane")}`,
      sent: `${things(now.delivered, "row")}; ${things(now.conflated, "message")} conflated`,
      journal: `${things(now.journal?.messages ?? 0, "message")}${now.journal?.first_ms ? `, the oldest ${age(this.#link.connection.ageOf(now.journal.first_ms))} old` : ""}`,
    };
    this.#facts.replaceChildren(...terms(facts));
  }

  /** The definition in the editor. */
  get #edited() {
    let edited;
    try {
      edited = parse(this.#text.value);
    } catch (error) {
      throw new Error(`Not JSON: ${/** @type {Error} */ (error).message}`);
    }
    if (!isObject(edited)) throw new Error("A definition is a JSON object.");
    return edited;
  }

  /** Show what would change, and let the gateway read the definition without taking it. */
  async #check() {
    const edited = this.#edited;
    try {
      await this.#link.change("PUT", this.#path, { json: edited, headers: { "If-Match": NO_TAG } });
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== CHANGED_MEANWHILE) throw error;
    }
    const names = [...new Set([...Object.keys(this.#definition), ...Object.keys(edited)])];
    const lines = names.filter((name) => !equal(this.#definition[name], edited[name])).map((name) => {
      const text = (/** @type {any} */ value) => (value === undefined ? "default" : pretty(value).replaceAll(/\s+/g, " "));
      return this.#isNew ? `${name}: ${text(edited[name])}` : `${name}: ${text(this.#definition[name])} → ${text(edited[name])}`;
    });
    this.#verdict.replaceChildren(h("p", { class: "good" }, "The gateway can read this definition. Nothing was changed."), h("pre", { class: "code" }, lines.join("\n") || "It is the present one."));
  }

  async #save() {
    const headers = this.#isNew ? { "If-None-Match": "*" } : { "If-Match": this.#etag };
    try {
      await this.#link.change("PUT", this.#path, { json: this.#edited, headers });
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== CHANGED_MEANWHILE) throw error;
      const reload = h("button", { onclick: () => void this.#load() }, "Load it again");
      const text = this.#isNew ? "A topic of this name exists." : "Somebody changed the topic in the meantime. Nothing was saved.";
      this.#verdict.replaceChildren(h("p", { class: "problem" }, text, " ", this.#isNew ? null : reload));
      return;
    }
    toast("Saved");
    await this.#changed();
    if (this.#isNew) location.hash = `#/topics?topic=${encodeURIComponent(this.#topic)}`;
    else {
      await this.#load();
      this.#say("Saved.", "good");
    }
  }

  async #delete() {
    if (!(await confirmed(`Delete ${this.#topic} with its records and its journal?`, "Delete it"))) return;
    // A look that overlaps would ask for a topic that is gone.
    await this.#stop();
    try {
      await this.#link.change("DELETE", this.#path, { headers: { "If-Match": this.#etag } });
    } catch (error) {
      if (this.element.isConnected) this.#begin();
      throw error;
    }
    this.close();
    this.element.replaceChildren(h("p", { class: "hint" }, `${this.#topic} is deleted.`));
    await this.#changed();
  }

  /** @param {() => Promise<void>} act */
  async #try(act) {
    try {
      await act();
    } catch (error) {
      this.#say(reasonOf(error), "problem");
    }
  }

  /**
   * @param {string} text
   * @param {string} kind
   */
  #say(text, kind) {
    this.#verdict.replaceChildren(h("p", { class: kind }, text));
  }
}
