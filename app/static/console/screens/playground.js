/**
 * The playground: a subscription composed with the gateway's explanation, live beside every message.
 *
 * @module
 */

import { card, choice, copy, every, field, h, terms } from "../kit/dom.js";
import { bytes, count, isTimeName, percent, shown, things, writerOf } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { Plot, Recent } from "../kit/plot.js";
import { asCurl, asJavaScript, asPython } from "../kit/snippets.js";
import { Table } from "../kit/table.js";
import { openDetail } from "./detail.js";
import { valueAt } from "./panel.js";
import { Problem, stringify } from "/client.js";

/** @typedef {import("../kit/link.js").Link} Link */
/** @typedef {import("../kit/snippets.js").Asked} Asked */

const TYPING_MS = 250;
const SAMPLE_ROWS = 200; // rows that are looked at for their decimals
const POINTS = 120;
const EXAMPLES = [
  "conflation=500ms", "conflation=1s,oof,receipt", "conflation=auto,max=5s", "conflation=500ms,pace=key,edge=leading", "conflation=1s,max_age=2s",
  "conflation=none", "conflation=1s,timestamp,send_keys",
];
const COMMANDS = ["", "sow", "subscribe", "sow_and_subscribe", "delta_subscribe", "sow_and_delta_subscribe"];
const LANGUAGES = { curl: asCurl, JavaScript: asJavaScript, Python: asPython };

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const text = (/** @type {string} */ name, /** @type {string} */ hint) =>
    h("input", { value: query.get(name) ?? "", placeholder: hint, spellcheck: "false", autocomplete: "off", list: name === "topic" ? "topics" : null });
  const inputs = {
    topic: text("topic", "prices"),
    options: h("textarea", { rows: 2, spellcheck: "false", value: query.get("options") ?? "conflation=500ms" }),
    filter: text("filter", "/price > 100"),
    order_by: text("order_by", "/price DESC"),
    command: choice(COMMANDS.map((name) => [name, name || "as the topic has it"]), query.get("command") ?? ""),
  };
  const example = choice([["", "examples…"], ...EXAMPLES.map((each) => /** @type {[string, string]} */ ([each, each]))], "", { "aria-label": "Examples of options" });
  const wrong = h("code", { class: "wrong", hidden: true });
  const verdict = h("div", { role: "status" });
  const offered = h("datalist", { id: "topics" });
  const code = new Code(link);
  const live = new Live(link);
  const button = h("button", { class: "primary", onclick: () => (live.isRunning ? stop() : void start()) }, "Subscribe live");

  const asked = () => /** @type {Asked} */ (Object.fromEntries(Object.entries(inputs).map(([name, { value }]) => [name, value.trim()]).filter(([, value]) => value)));
  const start = async () => {
    button.textContent = "Stop";
    await live.start(asked());
    if (!live.isRunning) button.textContent = "Subscribe live";
  };
  const stop = () => {
    live.stop();
    button.textContent = "Subscribe live";
  };
  let turn = 0;
  const explain = async () => {
    turn += 1;
    const mine = turn;
    const given = asked();
    remember(/** @type {any} */ (given));
    code.show(given);
    if (!given.topic) return;
    try {
      const found = await link.ask("POST", "/v1/explain", { json: given });
      if (mine === turn) explained(found);
    } catch (error) {
      // A later answer is of what stands there now.
      if (mine === turn) refused(error);
    }
  };
  const explained = (/** @type {any} */ found) => {
    wrong.hidden = true;
    const { estimates } = found;
    const facts = {
      granted: found.options, command: found.command, lane: found.lane ?? "none: it is sent once",
      "shared with": things(found.subscribers, "subscriber"), "after a break": found.resume ?? "–",
      "would be": estimates ? `${count(estimates.messages_per_s)} messages/s, ${bytes(estimates.bytes_per_s)}/s (from ${count(estimates.journalled)} of the journal)` : found.reason,
      defaults: Object.entries(found.defaults).map(([name, value]) => (value === true ? name : `${name}=${shown(value)}`)).join(", ") || "none",
    };
    verdict.replaceChildren(h("dl", { class: "facts" }, ...terms(facts)), ...found.warnings.map((/** @type {string} */ warning) => h("p", { class: "note" }, warning)));
  };
  const refused = (/** @type {any} */ error) => {
    verdict.replaceChildren(h("p", { class: "problem" }, reasonOf(error)));
    wrong.hidden = true;
    if (!(error instanceof Problem) || error.position === undefined) return;
    const source = error.code === "filter-invalid" ? inputs.filter.value : inputs.options.value;
    const { position } = error;
    // A text that ends too early is wrong behind its last character.
    wrong.replaceChildren(source.slice(0, position), h("mark", {}, source.slice(position).match(/^[^,\s]+|^./)?.[0] ?? "␣"));
    wrong.hidden = false;
  };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  for (const input of Object.values(inputs)) {
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => void explain(), TYPING_MS);
    });
  }
  example.addEventListener("change", () => {
    if (example.value) inputs.options.value = example.value;
    void explain();
  });
  element.append(
    offered,
    h("div", { class: "halves" },
      card("Subscription",
        h("div", { class: "form" }, field("Topic", inputs.topic), field("Command", inputs.command), field("Examples", example),
          h("label", { class: "field wide" }, h("span", {}, "Options"), inputs.options),
          field("Filter", inputs.filter), field("Order by", inputs.order_by)),
        wrong, verdict, h("p", { class: "buttons" }, button)),
      card("As a program", code.element)),
    live.element,
  );
  void link.gateway.topics().catch(() => []).then((topics) => {
    offered.append(...topics.map(({ topic }) => h("option", { value: topic })));
    if (!inputs.topic.value) inputs.topic.value = topics.find(({ topic }) => topic === "market")?.topic ?? topics[0]?.topic ?? "";
    void explain();
  });
  return () => {
    clearTimeout(timer);
    live.close();
  };
}

/** The same subscription in three languages. */
class Code {
  /** @param {Link} link */
  constructor(link) {
    this.#link = link;
    this.#text = h("pre", { class: "code", tabindex: 0, role: "tabpanel", "aria-label": "Program" });
    this.#tabs = Object.keys(LANGUAGES).map((name) => h("button", { role: "tab", "aria-selected": String(name === "curl"), onclick: () => this.#choose(name) }, name));
    this.element = h("div", { class: "program" }, h("div", { class: "tabs", role: "tablist", "aria-label": "Language" }, ...this.#tabs), this.#text,
      h("p", {}, h("button", { onclick: () => void copy(this.#text.textContent ?? "") }, "Copy")));
  }

  #link;
  #text;
  #tabs;
  /** @type {keyof typeof LANGUAGES} */
  #language = "curl";
  /** @type {Asked} */
  #asked = { topic: "" };

  /** @param {string} name */
  #choose(name) {
    this.#language = /** @type {keyof typeof LANGUAGES} */ (name);
    for (const tab of this.#tabs) tab.setAttribute("aria-selected", String(tab.textContent === name));
    this.show(this.#asked);
  }

  /** @param {Asked} asked */
  show(asked) {
    this.#asked = asked;
    this.#text.textContent = LANGUAGES[this.#language](location.origin, asked, this.#link.subject !== null);
  }
}

/** One subscriber that asks for every message beside one that asks for what was composed. */
class Live {
  /** @param {Link} link */
  constructor(link) {
    this.#link = link;
    this.#table = new Table({ label: "Live rows", empty: "Nothing yet.", flashes: true, onOpen: (row) => openDetail(link, row, { interval: "500ms" }) });
    this.element = h("div", { hidden: true, class: "panel" });
  }

  #link;
  #table;
  /** @type {Plot | null} */
  #plot = null;
  /** @type {import("/client.js").Gateway | null} */
  #gateway = null;
  #stopLooking = () => {};
  #raw = new Meter();
  #sent = new Meter();

  get isRunning() {
    return this.#gateway !== null;
  }

  /** @param {Asked} asked */
  async start(asked) {
    this.stop();
    // A session of its own: only these two subscribers are on its stream.
    const gateway = this.#link.apart();
    this.#gateway = gateway;
    this.#raw = new Meter();
    this.#sent = new Meter();
    const { topic, options, filter, order_by: orderBy, command } = asked;
    const subscription = gateway.subscribe(topic, { options, filter, orderBy, command, removals: false, hidden: false });
    const raw = gateway.subscribe(topic, { interval: "none", filter, command: "subscribe", removals: false, hidden: false });
    subscription.addEventListener("rows", ({ rows }) => this.#sent.add(rows));
    raw.addEventListener("rows", ({ rows }) => this.#raw.add(rows));
    this.element.hidden = false;
    try {
      const granted = await subscription.granted;
      this.#draw(granted);
    } catch (error) {
      this.stop();
      this.element.replaceChildren(h("p", { class: "problem", role: "alert" }, reasonOf(error)));
      return;
    }
    let hasColumns = false;
    subscription.addEventListener("change", ({ added, removed }) => {
      if (!hasColumns && added.length > 0) this.#table.setColumns(columnsOf(added));
      hasColumns ||= added.length > 0;
      this.#table.changed(added, removed);
    });
    const held = [...subscription.rows.values()];
    if (held.length > 0) this.#table.setColumns(columnsOf(held));
    hasColumns = held.length > 0;
    this.#table.show(subscription.rows);
  }

  stop() {
    this.#stopLooking();
    void this.#gateway?.close();
    this.#gateway = null;
  }

  close() {
    this.stop();
    this.#plot?.close();
    this.#table.close();
  }

  /** @param {any} granted */
  #draw(granted) {
    this.#plot?.close();
    const plot = new Plot({ label: "Messages and rows each second", text: count, seconds: POINTS, lines: [{ label: "every message", colour: "--raw", isFilled: true }, { label: "this subscription", colour: "--accent", isFilled: true }] });
    this.#plot = plot;
    const recent = new Recent(2, POINTS);
    const figures = ["Every message", "This subscription", "Rows saved", "Bytes saved"].map((title) => {
      const [big, small] = [h("p", { class: "big" }, "–"), h("small", {}, "")];
      return { big, small, card: card(title, big, small) };
    });
    figures[1].big.classList.add("accent");
    this.element.replaceChildren(
      h("p", { class: "caption" }, `granted ${granted.options ?? "each topic of the pattern"}`),
      h("div", { class: "cards" }, ...figures.map((figure) => figure.card)), card("Raw beside conflated", plot.element), this.#table.element,
    );
    this.#stopLooking = every(1_000, () => {
      const [raw, sent] = [this.#raw.second(), this.#sent.second()];
      // No rows say nothing while nobody could have sent any.
      if (!this.#link.connection.isLive) {
        recent.push(null, null);
        plot.draw(recent.columns);
        return;
      }
      recent.push(raw.rows, sent.rows);
      plot.draw(recent.columns);
      const saved = (/** @type {"rows" | "bytes"} */ of) => (this.#raw.all[of] > 0 ? 100 * (1 - this.#sent.all[of] / this.#raw.all[of]) : NaN);
      const tell = (/** @type {number} */ at, /** @type {string} */ big, /** @type {string} */ small) => {
        figures[at].big.textContent = big;
        figures[at].small.textContent = small;
      };
      tell(0, `${count(raw.rows)} /s`, `${bytes(raw.bytes)}/s, ${count(this.#raw.all.rows)} in all`);
      tell(1, `${count(sent.rows)} /s`, `${bytes(sent.bytes)}/s, ${count(this.#sent.all.rows)} in all`);
      tell(2, percent(saved("rows")), `${count(this.#raw.all.rows - this.#sent.all.rows)} rows`);
      tell(3, percent(saved("bytes")), `${bytes(this.#raw.all.bytes - this.#sent.all.bytes)} of values`);
    });
  }
}

/** Counts the rows of one subscriber. */
class Meter {
  all = { rows: 0, bytes: 0 };
  #before = { rows: 0, bytes: 0 };

  /** @param {import("/client/replica.js").Row[]} rows */
  add(rows) {
    for (const { op, value } of rows) {
      // A snapshot is sent once and is no part of what goes on.
      if (op === "snapshot") continue;
      this.all.rows += 1;
      this.all.bytes += stringify(value).length;
    }
  }

  /** Return what came since the last call. */
  second() {
    const grown = { rows: this.all.rows - this.#before.rows, bytes: this.all.bytes - this.#before.bytes };
    this.#before = { ...this.all };
    return grown;
  }
}

/** @param {import("/client/replica.js").Row[]} rows */
function columnsOf(rows) {
  const samples = rows.slice(0, SAMPLE_ROWS).map((row) => row.value);
  const [value] = samples;
  const names = value !== null && typeof value === "object" && !Array.isArray(value) ? Object.keys(value).map((name) => `/${name}`) : ["/"];
  return names.map((path) => ({
    id: path, title: path === "/" ? "value" : path.slice(1), kind: /** @type {"number" | "text"} */ (typeof valueAt(value, path) === "number" ? "number" : "text"),
    of: (/** @type {any} */ row) => valueAt(row.value, path), text: writerOf(path, samples.map((each) => valueAt(each, path))), isQuiet: isTimeName(path),
  }));
}
