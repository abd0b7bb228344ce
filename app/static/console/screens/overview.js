/**
 * The overview: whether the gateway is well, what comes in and goes out, what conflation saves, and what is slow.
 *
 * @module
 */

import { asserted, card, h, watched } from "../kit/dom.js";
import { age, bytes, count, percent, span, things } from "../kit/formats.js";
import { Health } from "../kit/health.js";
import { Metrics } from "../kit/metrics.js";
import { Plot, Recent } from "../kit/plot.js";
import { Table } from "../kit/table.js";
import { stateOf } from "./pipelines.js";

const LOOK_MS = 2_000;
const HOUR_S = 3_600;
const POINTS = (1_000 * HOUR_S) / LOOK_MS;
const SIGNS = { bad: "✖", warn: "▲", good: "✔", unknown: "·" };
const SLOW_SHOWN = 5;
const PIPELINES = "tidegate.pipelines";

// Of the page and not of the screen: who looks at another screen finds the hour as it was.
const health = new Health();
const [recentRates, recentLags] = [new Recent(3, POINTS), new Recent(2, POINTS)];
let isSeeded = false;

/** @type {import("../main.js").Screen} */
export function show({ element, link }) {
  if (!link.may("observe")) {
    element.append(h("p", { class: "card hint" }, "The overview reads /metrics, for which your token needs the verb observe of all topics (>). ",
      link.may("read") ? h("a", { href: "#/blotter" }, "The blotter shows what you may read.") : null));
    return () => {};
  }
  const figure = (/** @type {string} */ title, kind = "") => {
    const [big, small] = [h("p", { class: `big ${kind}` }, "–"), h("small", {}, " ")];
    /** @type {(value: string, note: string, mark?: string) => void} */
    const set = (value, note, mark = kind) => {
      big.textContent = value;
      big.className = `big ${mark}`;
      small.textContent = note;
    };
    return { set, card: card(title, big, small) };
  };
  const figures = { in: figure("Messages in"), out: figure("Rows out", "accent"), ratio: figure("Conflated"), saved: figure("Bytes saved"), sessions: figure("Sessions"), memory: figure("Memory") };
  const verdict = h("p", { class: "verdict", role: "status" }, "Reading…");
  const checks = h("ul", { class: "checks", "aria-label": "Checks" });
  const rates = new Plot({ label: "Messages in and rows out, each second", text: count, seconds: HOUR_S, lines: [
    { label: "asked for by subscribers", colour: "--raw", isFilled: true }, { label: "rows out", colour: "--accent", isFilled: true }, { label: "in", colour: "--warn" },
  ] });
  const lags = new Plot({ label: "Lateness, 99th percentile", text: (ms) => span(ms), seconds: HOUR_S, lines: [
    { label: "event loop", colour: "--raw" }, { label: "flushes", colour: "--accent" },
  ] });
  const topics = new Table({
    label: "Topics by rate", empty: "No topics yet.", onOpen: ({ id }) => (location.hash = `#/blotter?topic=${encodeURIComponent(id)}`),
    columns: [
      { id: "topic", title: "topic", of: (it) => it.id, isPinned: true },
      ...[["in", "in/s"], ["matched", "asked/s"], ["out", "out/s"]].map(([id, title]) => ({ id, title, kind: /** @type {const} */ ("number"), of: (/** @type {any} */ it) => it[id], text: count })),
      { id: "saved", title: "conflated", kind: "number", of: (it) => it.saved, text: percent },
      ...["keys", "subscriptions", "lanes", "waiting"].map((id) => ({ id, title: id, kind: /** @type {const} */ ("number"), of: (/** @type {any} */ it) => it[id], text: count })),
    ],
  });
  topics.view.sorts = [{ id: "in", isDescending: true }];
  topics.setColumns(topics.view.columns);
  const [slow, gateways, pipelines] = [h("div", { class: "rows" }), h("div", { class: "rows" }), h("div", { class: "rows" })];
  element.append(
    h("section", { class: "card", "aria-label": "Health" }, verdict, checks),
    h("div", { class: "cards" }, ...Object.values(figures).map((each) => each.card)),
    h("div", { class: "halves" }, card("Rates", rates.element), card("Lateness", lags.element)),
    h("div", { class: "thirds" }, card("Slow sessions", slow), card("Gateways", gateways), card("Pipelines", pipelines)),
    h("div", { class: "short" }, topics.element),
  );
  /** @type {Metrics | null} */
  let before = null;
  const stop = watched(element, LOOK_MS, async () => {
    const { text } = await link.transport.read("GET", "/metrics");
    const now = new Metrics(text);
    drawHealth(health.take(now, link.connection.ageOf(0)));
    if (!isSeeded && now.workers.length === 1) await seed();
    drawFigures(now);
    topics.show(new Map(now.topics.map((topic) => [topic, topicOf(now, before, topic)])));
    before = now;
    await Promise.all([drawSlow(), drawGateways(now), drawPipelines()]);
  });

  /** Put the hour before this page into the charts; each of several workers would have but its own part. */
  async function seed() {
    const { points } = await link.ask("GET", "/v1/history");
    isSeeded = true;
    recentRates.seed(points.map((/** @type {any} */ each) => [each.at_ms / 1_000, each.matched, each.delivered, each.messages_in]));
    recentLags.seed(points.map((/** @type {any} */ each) => [each.at_ms / 1_000, null, each.flush_lateness_ms]));
  }

  /** @param {import("../kit/health.js").Finding[]} findings The worst first. */
  function drawHealth(findings) {
    const ill = findings.filter(({ state }) => state === "bad" || state === "warn");
    const worst = findings[0].state;
    const known = ill.length === 0 ? "Healthy: all checks are within their limits" : ill.map(({ title, value, limit }) => `${title}: ${value}${limit && `, limit ${limit}`}`).join(" · ");
    verdict.className = `verdict ${worst === "bad" || worst === "warn" ? worst : "good"}`;
    verdict.replaceChildren(h("b", {}, SIGNS[worst === "bad" || worst === "warn" ? worst : "good"], " "), ...asserted(known, "Health is not known without the gateway."));
    checks.replaceChildren(...findings.map(({ alert, title, value, limit, state }) => h("li", { class: state, title: `${alert}${limit ? `: limit ${limit}` : ""}` },
      h("span", { "aria-hidden": "true" }, SIGNS[state]), h("span", {}, title), ...asserted(h("b", {}, value), "–"))));
  }

  /** @param {Metrics} now */
  function drawFigures(now) {
    const rate = (/** @type {string} */ name) => now.rate(before, `tidegate_topic_${name}`);
    const [incoming, matched, out, conflated] = [rate("messages_in_total"), rate("matched_total"), rate("delivered_total"), rate("conflated")];
    figures.in.set(`${count(incoming)} /s`, `${bytes(rate("bytes_in_total"))}/s, ${count(now.sum("tidegate_topic_messages_in_total"))} in all`);
    figures.out.set(`${count(out)} /s`, `of ${count(matched)}/s that subscribers asked for`);
    const all = { matched: now.sum("tidegate_topic_matched_total"), conflated: now.sum("tidegate_topic_conflated") };
    figures.ratio.set(percent(matched > 0 ? (100 * conflated) / matched : NaN), `${percent((100 * all.conflated) / all.matched)} since the start`);
    const saved = (/** @type {(topic: string) => number} */ amount) => now.topics.reduce((sum, topic) => sum + amount(topic) * sizeOf(now, topic), 0);
    figures.saved.set(`${bytes(saved((topic) => now.rate(before, "tidegate_topic_conflated", { topic })))}/s`, `${bytes(saved((topic) => now.sum("tidegate_topic_conflated", { topic })))} in all`);
    const state = (/** @type {string} */ name) => now.sum("tidegate_sessions", { state: name });
    figures.sessions.set(count(state("attached")), `${state("away")} away, ${bytes(now.sum("tidegate_unacknowledged_bytes"))} unacknowledged`);
    const since = Math.min(...now.of("process_start_time_seconds").map(({ value }) => value));
    const store = now.of("tidegate_store_size_bytes").length > 0 ? `store ${bytes(now.sum("tidegate_store_size_bytes"))}, ` : "";
    figures.memory.set(bytes(now.sum("process_resident_memory_bytes")), `${store}up ${age(link.connection.ageOf(1_000 * since))}`);
    const ms = (/** @type {string} */ name) => {
      const seconds = now.quantile(before, name, 0.99);
      return seconds === null ? null : 1_000 * seconds;
    };
    if (before) {
      recentRates.push(matched, out, incoming);
      recentLags.push(ms("tidegate_event_loop_lag_seconds"), ms("tidegate_flush_lateness_seconds"));
    }
    rates.draw(recentRates.columns);
    lags.draw(recentLags.columns);
  }

  async function drawSlow() {
    const { sessions } = await link.ask("GET", "/v1/sessions?limit=1000");
    const behind = sessions.filter((/** @type {any} */ each) => each.queue.messages > 0 || each.unsent_bytes > 0);
    behind.sort((/** @type {any} */ one, /** @type {any} */ other) => other.queue.bytes + other.unsent_bytes - one.queue.bytes - one.unsent_bytes);
    const lines = behind.slice(0, SLOW_SHOWN).map((/** @type {any} */ { session, queue, unsent_bytes: unsent }) =>
      h("p", {}, h("a", { href: `#/sessions?session=${encodeURIComponent(session)}` }, session), ` ${things(queue.messages, "message")} queued, ${bytes(unsent)} unsent`));
    slow.replaceChildren(...(lines.length > 0 ? lines : [h("small", {}, ...asserted("Every reader keeps up.", "Not known without the gateway."))]));
  }

  /** @param {Metrics} now */
  async function drawGateways(now) {
    const { answer } = await link.transport.read("GET", "/healthz");
    const name = answer.headers.get("Tidegate-Gateway") ?? "this gateway";
    gateways.replaceChildren(...now.workers.map((worker) => {
      const labels = worker ? { worker } : {};
      const isReady = now.sum("tidegate_ready", /** @type {any} */ (labels)) > 0;
      return h("p", {}, h("span", { class: `tag ${isReady ? "" : "bad"}` }, ...asserted(isReady ? "ready" : "not ready")), ` ${worker ? `worker ${worker}` : name}: ${things(now.sum("tidegate_connections", /** @type {any} */ (labels)), "connection")}, ${things(now.sum("tidegate_topics", /** @type {any} */ (labels)), "topic")}`);
    }));
  }

  async function drawPipelines() {
    const found = await link.gateway.sow(PIPELINES).catch(() => []);
    const lines = found.map(({ pipeline, state, lag, rows_per_s: rate, at_ms: at }) =>
      h("p", {}, h("span", { class: `tag ${state === "failed" ? "bad" : ""}` }, ...asserted(stateOf(state, link.connection.ageOf(at)))), " ", h("a", { href: "#/pipelines" }, pipeline), ` ${count(rate)} rows/s, ${count(lag)} behind`));
    pipelines.replaceChildren(...(lines.length > 0 ? lines : [h("small", {}, ...asserted("None has reported.", "Not known without the gateway."))]));
  }

  return () => {
    stop();
    rates.close();
    lags.close();
    topics.close();
  };
}

/**
 * Return the mean size of a message of a topic.
 *
 * @param {Metrics} now
 * @param {string} topic
 */
function sizeOf(now, topic) {
  const messages = now.sum("tidegate_topic_messages_in_total", { topic });
  return messages > 0 ? now.sum("tidegate_topic_bytes_in_total", { topic }) / messages : 0;
}

/**
 * @param {Metrics} now
 * @param {Metrics | null} before
 * @param {string} topic
 */
function topicOf(now, before, topic) {
  const rate = (/** @type {string} */ name) => now.rate(before, `tidegate_topic_${name}`, { topic });
  const gauge = (/** @type {string} */ name) => now.sum(`tidegate_topic_${name}`, { topic });
  return {
    id: topic, in: rate("messages_in_total"), matched: rate("matched_total"), out: rate("delivered_total"),
    saved: gauge("matched_total") > 0 ? (100 * gauge("conflated")) / gauge("matched_total") : NaN,
    keys: gauge("keys"), subscriptions: gauge("subscriptions"), lanes: gauge("lanes"), waiting: gauge("waiting"),
  };
}
