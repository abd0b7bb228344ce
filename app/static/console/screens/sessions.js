/**
 * Sessions: who reads, who is slow, what each is sent and what it is spared; and what is polled.
 *
 * @module
 */

import { bar, card, choice, confirmed, field, h, terms, toast, watched } from "../kit/dom.js";
import { bytes, clientOf, clock, count, percent, span, things } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { Plot, Recent } from "../kit/plot.js";
import { Table } from "../kit/table.js";
import { traceInto } from "./detail.js";
import { INTERVALS } from "./panel.js";
import { Problem } from "/client.js";

/** @typedef {import("../kit/link.js").Link} Link */

const LOOK_MS = 1_000;
const GONE = 404;
const POINTS = 120;
const UNSENT_MAX = 65_536; // more than a socket's own small buffers hold of a reader that keeps up

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const place = h("div", { class: "panel", hidden: true });
  const number = /** @type {const} */ ("number");
  const table = new Table({
    label: "Sessions", empty: "No reader is connected.",
    rowClass: (session) => (session.state === "attached" ? "" : "stale"),
    onOpen: ({ session }) => choose(session),
    columns: [
      { id: "session", title: "session", of: (it) => it.session, isPinned: true },
      { id: "client", title: "client", of: (it) => it.client, text: clientOf },
      { id: "address", title: "address", of: (it) => it.address },
      { id: "owner", title: "owner", of: (it) => it.owner },
      { id: "state", title: "state", of: (it) => it.state },
      { id: "mark", title: "mark", of: markOf, class: (mark) => (mark ? "bad" : "") },
      { id: "rate", title: "rows/s", kind: number, of: (it) => it.rate, text: count },
      { id: "subscriptions", title: "subs", kind: number, of: (it) => it.subscriptions },
      { id: "queue", title: "queued", kind: number, of: (it) => it.queue.messages, text: count },
      { id: "queue bytes", title: "queued bytes", kind: number, of: (it) => it.queue.bytes, text: bytes },
      { id: "unsent", title: "unsent", kind: number, of: (it) => it.unsent_bytes, text: bytes },
      { id: "conflated", title: "full queue", of: (it) => (it.conflated ? "conflates" : "closes") },
      { id: "opened", title: "open for", kind: number, of: (it) => it.opened_ms, text: (at) => (at ? span(link.connection.ageOf(at)) : "") },
      { id: "topics", title: "topics", of: (it) => it.topics.join(", ") },
    ],
  });
  const caption = h("p", { class: "caption" });
  /** @type {SessionCard | null} */
  let shown = null;
  const choose = (/** @type {string} */ session) => {
    shown?.close();
    shown = new SessionCard(link, session, leave);
    place.hidden = false;
    place.replaceChildren(shown.element);
    remember({ session });
  };
  const leave = () => {
    shown?.close();
    shown = null;
    place.hidden = true;
    remember({});
  };
  /** @type {Map<string, any>} */
  let sessions = new Map();
  let listedAt = 0;
  const polled = new PolledStreams(link);
  const panel = h("div", { class: "panel" }, caption, table.element, polled.element);
  const stop = watched(panel, LOOK_MS, async () => {
    const at = performance.now();
    const items = new Map();
    for (let path = "/v1/sessions?limit=1000"; path; ) {
      const page = await link.ask("GET", path);
      for (const each of page.sessions) items.set(each.session, { ...each, rate: rateOf(each.delivered - sessions.get(each.session)?.delivered, at - listedAt) });
      if (page.missing) toast(`No answer from ${page.missing.join(", ")}`);
      path = page.next;
    }
    sessions = items;
    listedAt = at;
    table.show(items);
    const slow = [...items.values()].filter((each) => markOf(each) !== "").length;
    caption.textContent = `${things(items.size, "session")}, ${slow} slow`;
  });
  element.append(h("div", { class: "split" }, panel, place));
  const asked = query.get("session");
  if (asked) choose(asked);
  return () => {
    void stop();
    shown?.close();
    table.close();
    polled.close();
  };
}

/**
 * Return rows a second; 0 where a counter began again, with another reader or without a subscription.
 *
 * @param {number} grown
 * @param {number} ms
 */
function rateOf(grown, ms) {
  return Math.max(0, (1_000 * grown) / ms);
}

/**
 * Return the mark of a session that does not keep up; empty for one that does.
 *
 * @param {any} session
 */
function markOf({ queue, limits, unsent_bytes: unsent }) {
  const full = 100 * Math.max(queue.messages / limits.messages, queue.bytes / limits.bytes);
  if (full >= limits.upper) return "full";
  return full >= limits.lower || unsent > UNSENT_MAX ? "slow" : "";
}

/** What readers without a connection read: a stream for all who ask for the same rows. */
class PolledStreams {
  /** @param {Link} link */
  constructor(link) {
    this.#link = link;
    const number = /** @type {const} */ ("number");
    const age = (/** @type {number | null} */ ms) => (ms === null ? "–" : ms === 0 ? "none" : span(ms));
    this.#table = new Table({
      label: "Polled streams", empty: "Nobody polls a topic.",
      columns: [
        { id: "topic", title: "topic", of: (it) => it.topic, isPinned: true },
        { id: "filter", title: "filter", of: (it) => it.filter ?? "" },
        { id: "waiting", title: "waiting", kind: number, of: (it) => it.waiting, text: count },
        { id: "positions", title: "positions", kind: number, of: (it) => it.positions, text: count },
        { id: "newest", title: "newest behind", kind: number, of: (it) => it.newest_age_ms, text: age },
        { id: "oldest", title: "oldest behind", kind: number, of: (it) => it.oldest_age_ms, text: age },
        { id: "requests", title: "requests/s", kind: number, of: (it) => it.request_rate, text: count },
        { id: "answers", title: "answers/s", kind: number, of: (it) => it.answer_rate, text: count },
        { id: "bytes", title: "bytes/s", kind: number, of: (it) => it.byte_rate, text: bytes },
        { id: "opened", title: "read for", kind: number, of: (it) => it.opened_ms, text: (at) => (at ? span(link.connection.ageOf(at)) : "") },
        { id: "options", title: "options", of: (it) => it.options },
        { id: "form", title: "format", of: (it) => it.format },
        { id: "gateway", title: "gateway", of: (it) => it.gateway },
      ],
    });
    this.element = h("section", { class: "panel", hidden: true, "aria-label": "Polled" }, this.#title, this.#table.element);
    // Who may not observe anything has sessions, and sees no polled streams.
    if (link.may("observe")) this.#stop = watched(this.element, LOOK_MS, () => this.#look());
  }

  #link;
  #table;
  #title = h("h2", {});
  /** @type {Map<string, any>} */
  #streams = new Map();
  #at = 0;
  /** @type {(() => unknown) | null} */
  #stop = null;

  close() {
    void this.#stop?.();
    this.#table.close();
  }

  async #look() {
    const at = performance.now();
    const items = new Map();
    const { streams } = await this.#link.ask("GET", "/v1/polled");
    for (const each of streams) {
      // One that was closed and begins anew counts from zero.
      const id = [each.gateway, each.topic, each.options, each.filter, each.order_by, each.format, each.opened_ms].join("\n");
      const before = this.#streams.get(id);
      const rate = (/** @type {string} */ name) => (before ? rateOf(each[name] - before[name], at - this.#at) : 0);
      items.set(id, { ...each, request_rate: rate("requests"), answer_rate: rate("answers"), byte_rate: rate("sent_bytes") });
    }
    this.#streams = items;
    this.#at = at;
    const sum = (/** @type {string} */ name) => [...items.values()].reduce((all, each) => all + each[name], 0);
    this.element.hidden = items.size === 0;
    this.#title.textContent = `${things(items.size, "polled stream")}, ${things(sum("waiting"), "request")} waiting`;
    this.#table.show(items);
  }
}

/** One session with its subscriptions: what was published for each beside what it was sent. */
class SessionCard {
  /**
   * @param {Link} link
   * @param {string} session
   * @param {() => void} leave
   */
  constructor(link, session, leave) {
    this.#link = link;
    this.#path = `/v1/sessions/${encodeURIComponent(session)}`;
    this.#subscriptions = new Table({
      label: "Subscriptions", empty: "No subscriptions.", onOpen: (item) => this.#choose(item),
      columns: [
        { id: "sub", title: "sub", of: (it) => it.sub, isPinned: true },
        { id: "topic", title: "topic", of: (it) => it.topic },
        { id: "interval", title: "interval", kind: "number", of: (it) => it.interval_ms, text: (ms) => (ms === 0 ? "none" : ms ? span(ms) : "–") },
        { id: "raw", title: "raw/s", kind: "number", of: (it) => it.raw, text: count },
        { id: "sent", title: "sent/s", kind: "number", of: (it) => it.sent, text: count },
        { id: "saved", title: "saved", kind: "number", of: (it) => (it.matched ? (100 * it.conflated) / it.matched : NaN), text: percent },
        { id: "waiting", title: "waiting", kind: "number", of: (it) => it.waiting, text: count },
        { id: "dropped", title: "dropped", kind: "number", of: (it) => it.dropped, text: count },
        { id: "options", title: "options", of: (it) => it.options ?? "(each topic)" },
      ],
    });
    this.#plot = new Plot({ label: "Messages for this session and rows sent to it, each second", text: count, seconds: POINTS, height: 150,
      lines: [{ label: "raw: published for it", colour: "--raw", isFilled: true }, { label: "conflated: sent to it", colour: "--accent", isFilled: true }] });
    this.#conflate = h("button", { onclick: () => void this.#try(() => link.change("PATCH", this.#path, { json: { conflated: !this.#session?.conflated } })) }, "…");
    const close = h("button", { class: "danger", onclick: () => void this.#end(session) }, "Close the session");
    const buttons = h("p", { class: "buttons" }, this.#conflate, close);
    bar(buttons, link.isReadOnly ? link.obstacle("write") : "");
    this.element = h("div", { class: "panel" },
      h("p", { class: "buttons end" }, h("button", { class: "quiet", "aria-label": "Back to the list", onclick: leave }, "✕")),
      card(session, this.#facts, buttons), card("Raw beside conflated", this.#bars, this.#plot.element), this.#subscriptions.element, this.#more);
    this.#stop = watched(this.element, LOOK_MS, () => this.#look());
  }

  #link;
  #path;
  #subscriptions;
  #plot;
  #conflate;
  #stop;
  #facts = h("dl", { class: "facts" });
  #bars = h("div", { class: "bars" });
  #more = h("div", { class: "panel", hidden: true });
  #recent = new Recent(2, POINTS);
  /** @type {any} */
  #session = null;
  /** @type {Map<string, { matched: number, delivered: number, at: number }>} */
  #before = new Map();
  #leaving = new AbortController();

  close() {
    void this.#stop();
    this.#leaving.abort();
    this.#subscriptions.close();
    this.#plot.close();
  }

  async #look() {
    try {
      this.#session = await this.#link.ask("GET", this.#path);
    } catch (error) {
      // Without an answer nothing is known of the session.
      if (!(error instanceof Problem) || error.status !== GONE) throw error;
      this.#facts.replaceChildren(h("dt", {}, "gone"), h("dd", { class: "problem" }, reasonOf(error)));
      void this.#stop();
      return;
    }
    const now = performance.now();
    const items = new Map();
    for (const each of this.#session.subscriptions) {
      const before = this.#before.get(each.sub);
      const seconds = before ? (now - before.at) / 1_000 : 1;
      // Counters begin again with each reader.
      const rate = (/** @type {"matched" | "delivered"} */ name) => (before && each[name] >= before[name] ? (each[name] - before[name]) / seconds : 0);
      items.set(each.sub, { ...each, raw: rate("matched"), sent: rate("delivered") });
      this.#before.set(each.sub, { matched: each.matched, delivered: each.delivered, at: now });
    }
    this.#subscriptions.show(items);
    const sum = (/** @type {string} */ name) => [...items.values()].reduce((all, each) => all + each[name], 0);
    this.#recent.push(sum("raw"), sum("sent"));
    this.#plot.draw(this.#recent.columns);
    this.#drawBars(sum("matched"), sum("delivered"), sum("conflated"));
    this.#drawFacts();
  }

  /**
   * @param {number} matched
   * @param {number} delivered
   * @param {number} conflated
   */
  #drawBars(matched, delivered, conflated) {
    const bar = (/** @type {string} */ name, /** @type {number} */ value, /** @type {string} */ colour) =>
      h("div", {}, h("span", {}, name), h("progress", { class: colour, max: Math.max(1, matched), value, "aria-label": name }), h("b", {}, count(value)));
    const saved = matched > 0 ? `: ${percent((100 * conflated) / matched)} saved` : "";
    this.#bars.replaceChildren(bar("raw", matched, ""), bar("conflated", delivered, "accent"), h("small", {}, `${count(conflated)} messages were conflated into newer ones${saved}.`));
  }

  #drawFacts() {
    const { state, reason, address, client, opened_ms: opened, unsent_bytes: unsent, queue, limits, conflated } = this.#session;
    const facts = {
      state: reason ? `${state}; before that ${reason}` : state,
      client: [client, address && `at ${address}`].filter(Boolean).join(" ") || "–",
      opened: opened ? clock(opened) : "–",
      queue: `${count(queue.messages)} of ${count(limits.messages)} messages, ${bytes(queue.bytes)} of ${bytes(limits.bytes)}`,
      unsent: bytes(unsent),
      "a full queue": conflated ? "is conflated, as each topic's policy says" : "closes the session",
    };
    this.#facts.replaceChildren(...terms(facts));
    this.#conflate.textContent = conflated ? "Never conflate its queue" : "Conflate its queue";
  }

  /** @param {any} subscription */
  #choose({ sub, topic, options, filter, command, topics }) {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    const { signal } = this.#leaving;
    const path = `${this.#path}/subscriptions/${encodeURIComponent(sub)}`;
    const story = h("ol", { class: "story" });
    const lines = h("pre", { class: "code", tabindex: 0, "aria-label": "Trace" });
    const interval = choice([["", "as it is"], .../** @type {[string, string][]} */ (INTERVALS.map((each) => [each, each]))], "", { "aria-label": `Interval of ${sub}` });
    interval.addEventListener("change", () => void this.#try(() => this.#link.change("PATCH", path, { json: { conflation: interval.value } })));
    interval.disabled = this.#link.isReadOnly;
    // A trace is of one topic.
    const one = topics?.[0]?.topic;
    const begin = h("button", { onclick: () => {
      begin.disabled = true;
      const address = one ? `${path}/trace?topic=${encodeURIComponent(one)}` : `${path}/trace`;
      traceInto(this.#link, address, lines, signal).catch((error) => signal.aborted || lines.prepend(`${reasonOf(error)}\n`)).finally(() => (begin.disabled = false));
    } }, "Trace it live");
    this.#more.hidden = false;
    this.#more.replaceChildren(card(`${sub}: ${topic}`,
      h("dl", { class: "facts" }, ...terms({ command: command ?? "–", options: options ?? "each topic its own", filter: filter ?? "none" })),
      h("div", { class: "toolbar" }, field("Change the interval", interval), this.#link.may("observe") ? begin : null),
      h("h3", {}, "The story of its interval"), story, h("h3", {}, "Trace"), lines));
    void this.#tell(path, story);
  }

  /**
   * @param {string} path
   * @param {HTMLElement} story
   */
  async #tell(path, story) {
    const { interval, min, max, decisions } = await this.#link.ask("GET", `${path}/auto`);
    const now = h("li", {}, `now ${interval ?? "every message"}${min ? `, automatic between ${min} and ${max}` : ", as asked for"}`);
    story.replaceChildren(now, ...[...decisions].reverse().map((/** @type {any} */ { at_ms: at, from, to, reason, inputs }) =>
      h("li", {}, `${clock(at)} ${from} → ${to}: ${reason} (${bytes(inputs.unsent_bytes)} unsent, drained in ${span(inputs.drain_ms)}, ${things(inputs.late_rounds, "late round")}, calm for ${span(inputs.calm_ms)})`)));
  }

  /** @param {string} session */
  async #end(session) {
    if (await confirmed(`Close the session ${session}? Its reader will not come back.`, "Close it")) {
      await this.#try(() => this.#link.change("DELETE", this.#path));
    }
  }

  /** @param {() => Promise<any>} change */
  async #try(change) {
    try {
      await change();
      await this.#look();
    } catch (error) {
      toast(reasonOf(error));
    }
  }
}
