/**
 * What other intervals would cost: computed from a topic's journal, or read from a saved plan.
 *
 * @module
 */

import { card, field, h } from "../kit/dom.js";
import { bytes, count, percent, span, things } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { Plot } from "../kit/plot.js";
import { Table } from "../kit/table.js";
import { milliseconds } from "/client/interval.js";
import { parse } from "/client.js";

/** @typedef {import("../kit/link.js").Link} Link */

/**
 * What `tidegate pipeline plan` says of one choice.
 *
 * @typedef {object} Choice
 * @property {string} key
 * @property {string} interval
 * @property {string} pace
 * @property {number} messages
 * @property {number} bytes
 * @property {number} saving The share of the messages that is not sent.
 * @property {number} age_p50_ms
 * @property {number} age_p99_ms
 */

const STEPS_MS = [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
const PACES = ["batch", "key"];
const COLOURS = ["--accent", "--warn", "--good", "--bad", "--raw"];

/** What each interval would have sent of the messages in a topic's journal. */
export class WhatIf {
  /**
   * @param {Link} link
   * @param {string} topic
   * @param {(topic: string) => void} remember
   */
  constructor(link, topic, remember) {
    this.#link = link;
    this.#remember = remember;
    this.#topic = h("input", { value: topic, list: "topics", required: true, spellcheck: "false", autocomplete: "off" });
    const offered = h("datalist", { id: "topics" });
    void link.gateway.topics().catch(() => []).then((topics) => {
      offered.append(...topics.map(({ topic: name }) => h("option", { value: name })));
      this.#topic.value ||= topics.find(({ key }) => key?.length > 0)?.topic ?? "";
      if (topic) void this.#compute();
    });
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      void this.#compute();
    };
    this.element = card("What if", offered,
      h("p", {}, h("small", {}, "What a subscriber would have been sent of the newest messages in the journal, at each interval.")),
      h("form", { class: "toolbar", onsubmit: submit }, field("Topic", this.#topic), h("button", { class: "primary" }, "Compute")), this.#status, this.#place);
  }

  #link;
  #remember;
  #topic;
  #status = h("p", { class: "caption", role: "status" });
  #place = h("div", { class: "halves" });
  /** @type {Plot | null} */
  #plot = null;

  close() {
    this.#plot?.close();
  }

  async #compute() {
    const topic = this.#topic.value;
    this.#remember(topic);
    this.#status.textContent = "computing…";
    this.#status.classList.remove("problem");
    try {
      const raw = await this.#explained(topic, "conflation=none");
      const found = [];
      // One after the other: the gateway computes estimates one at a time anyway.
      for (const ms of STEPS_MS) {
        const [batch, key] = [await this.#explained(topic, `conflation=${ms}ms,pace=${PACES[0]}`), await this.#explained(topic, `conflation=${ms}ms,pace=${PACES[1]}`)];
        found.push({ ms, batch, key });
      }
      this.#draw(raw, found);
    } catch (error) {
      this.#status.textContent = reasonOf(error);
      this.#status.classList.add("problem");
    }
  }

  /**
   * @param {string} topic
   * @param {string} options
   */
  async #explained(topic, options) {
    const { estimates, reason } = await this.#link.ask("POST", "/v1/explain", { json: { topic, options } });
    if (!estimates) throw new Error(`There is nothing to compute from: ${reason}.`);
    return estimates;
  }

  /**
   * @param {any} raw
   * @param {{ ms: number, batch: any, key: any }[]} found
   */
  #draw(raw, found) {
    this.#status.textContent = `from ${count(raw.journalled)} messages: ${count(raw.messages_per_s)} messages/s and ${bytes(raw.bytes_per_s)}/s without conflation`;
    this.#plot?.close();
    const plot = new Plot({ label: "Messages a second at each interval", isTime: false, isLogarithmicAcross: true, text: count, across: span, height: 260, lines: [
      { label: "every message", colour: "--raw" }, { label: "pace=batch", colour: "--accent", isFilled: true }, { label: "pace=key", colour: "--warn" },
    ] });
    this.#plot = plot;
    plot.draw([found.map(({ ms }) => ms), found.map(() => raw.messages_per_s), found.map(({ batch }) => batch.messages_per_s), found.map(({ key }) => key.messages_per_s)]);
    const table = new Table({
      label: "Intervals", columns: [
        { id: "ms", title: "interval", kind: "number", of: (it) => it.ms, text: span, isPinned: true },
        { id: "rate", title: "messages/s", kind: "number", of: (it) => it.batch.messages_per_s, text: count },
        { id: "bytes", title: "bytes/s", kind: "number", of: (it) => it.batch.bytes_per_s, text: bytes },
        { id: "saved", title: "bytes saved", kind: "number", of: (it) => 100 * (1 - it.batch.bytes_per_s / raw.bytes_per_s), text: percent },
        { id: "key", title: "pace=key/s", kind: "number", of: (it) => it.key.messages_per_s, text: count },
      ],
    });
    table.show(new Map(found.map((each) => [String(each.ms), each])));
    this.#place.replaceChildren(plot.element, table.element);
  }
}

/** The savings of a plan that `tidegate pipeline plan --json` has written; the file stays in this browser. */
export class SavedPlan {
  constructor() {
    const file = h("input", { type: "file", accept: ".json,application/json" });
    file.addEventListener("change", () => file.files?.[0] && void this.#read(file.files[0]));
    this.element = card("A saved plan",
      h("p", {}, h("small", {}, "What each key, interval and pace would have saved over a whole history: ", h("code", {}, "tidegate pipeline plan archive/ --key /symbol --interval 100ms,1s,5s --json > plan.json"))),
      field("Plan, as JSON", file), this.#status, this.#place);
  }

  #status = h("p", { class: "caption", role: "status" });
  #place = h("div", { class: "halves" });
  /** @type {(Plot | Table)[]} */
  #shown = [];

  close() {
    for (const each of this.#shown.splice(0)) each.close();
    this.#place.replaceChildren();
  }

  /** @param {File} file */
  async #read(file) {
    this.close();
    try {
      this.#draw(file.name, checkedPlan(await file.text()));
    } catch (error) {
      this.#status.textContent = `${file.name}: ${reasonOf(error)}`;
    }
    this.#status.classList.toggle("problem", this.#shown.length === 0);
  }

  /**
   * @param {string} name
   * @param {{ choices: Choice[], recommendations: Choice[], history: any[] }} plan
   */
  #draw(name, { choices, recommendations, history }) {
    // In the plan's order: the first group is the one that was asked for first.
    const labels = [...new Set(choices.map(labelOf))];
    const steps = [...new Set(choices.map(({ interval }) => milliseconds(interval)))].sort((one, other) => one - other);
    const plot = new Plot({
      label: "Messages saved at each interval", isTime: false, isLogarithmicAcross: true, text: percent, across: span, height: 260,
      lines: labels.map((label, at) => ({ label, colour: COLOURS[at % COLOURS.length] })),
    });
    const savings = labels.map((label) => steps.map((ms) => {
      const found = choices.find((one) => labelOf(one) === label && milliseconds(one.interval) === ms);
      return found ? 100 * found.saving : null;
    }));
    plot.draw([steps, ...savings]);
    const isBest = (/** @type {Choice} */ one) => recommendations.some(({ key, pace, interval }) => key === one.key && pace === one.pace && interval === one.interval);
    const number = /** @type {const} */ ("number");
    const table = new Table({
      label: "Choices", columns: [
        { id: "interval", title: "interval", kind: number, of: (it) => milliseconds(it.interval), text: span, isPinned: true },
        { id: "best", title: "advice", of: (it) => (isBest(it) ? "recommended" : ""), class: (text) => (text ? "good" : "") },
        { id: "saving", title: "saved", kind: number, of: (it) => 100 * it.saving, text: percent },
        { id: "key", title: "key", of: (it) => it.key },
        { id: "pace", title: "pace", of: (it) => it.pace },
        { id: "messages", title: "messages", kind: number, of: (it) => it.messages, text: count },
        { id: "bytes", title: "bytes", kind: number, of: (it) => it.bytes, text: bytes },
        { id: "p50", title: "age p50", kind: number, of: (it) => it.age_p50_ms, text: span },
        { id: "p99", title: "age p99", kind: number, of: (it) => it.age_p99_ms, text: span },
      ],
    });
    table.show(new Map(choices.map((choice, at) => [String(at), choice])));
    this.#shown.push(plot, table);
    this.#place.replaceChildren(plot.element, table.element);
    const [{ messages, keys }] = history;
    this.#status.textContent = `${name}: ${things(messages, "message")} of ${things(keys, "key")}. Recommended is the shortest interval with 90 % of the longest one's saving.`;
  }
}

/** @param {Choice} choice */
function labelOf({ key, pace }) {
  return `${key} pace=${pace}`;
}

/**
 * Return the plan in a text.
 *
 * @param {string} text
 * @throws {Error} The text is no plan.
 */
function checkedPlan(text) {
  /** @type {any} */
  let plan;
  try {
    plan = parse(text);
  } catch {
    throw new Error("this is not JSON");
  }
  const isWhole = ["choices", "recommendations", "history"].every((name) => Array.isArray(plan?.[name]) && plan[name].length > 0);
  const isNumbered = isWhole && plan.choices.every((/** @type {any} */ one) => typeof one?.saving === "number" && milliseconds(String(one.interval)) > 0);
  if (!isNumbered) throw new Error("this is no plan of `tidegate pipeline plan --json`");
  return plan;
}
