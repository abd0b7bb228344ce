/**
 * Whether a gateway is well: its metrics against the limits of `deploy/alerts.yml`.
 *
 * Pure: it reads metrics, and knows no element. A test compares the limits with those of the alerts.
 *
 * @module
 */

import { count, percent, span } from "./formats.js";

/** @typedef {import("./metrics.js").Metrics} Metrics */

/**
 * What is kept of one look.
 *
 * @typedef {object} Seen
 * @property {number} at
 * @property {Record<string, number>} counters
 * @property {Record<string, { bound: number, count: number }[]>} histograms
 * @property {number} apart Rows that are not accounted for.
 */

/**
 * A check: an alert, with the value that it looks at.
 *
 * @typedef {object} Check
 * @property {string} alert
 * @property {"critical" | "warning"} severity
 * @property {number} limit What must not be exceeded; of readiness, what must not be.
 * @property {string} title
 * @property {(value: number) => string} text
 * @property {(metrics: Metrics, window: Seen[], nowMs: number) => number | null} value Null where nothing is measured.
 */

/** @typedef {{ alert: string, severity: "critical" | "warning", title: string, value: string, limit: string, state: "good" | "warn" | "bad" | "unknown" }} Finding */

const WINDOW_MS = 300_000; // as the alerts
const COUNTERS = {
  failures: ["tidegate_store_failures_total", {}], refused: ["tidegate_connections_refused_total", {}], full: ["tidegate_sessions_closed_total", { reason: "MESSAGE_QUEUE_LIMIT_REACHED" }],
  behind: ["tidegate_unsubscribed_total", { reason: "BACK_PRESSURE" }], frozen: ["tidegate_connections_given_up_total", {}], mergers: ["tidegate_merger_failures_total", {}],
  cpu: ["process_cpu_seconds_total", {}],
};
const HISTOGRAMS = { loop: "tidegate_event_loop_lag_seconds", flush: "tidegate_flush_lateness_seconds", store: "tidegate_store_append_seconds" };

const seconds = (/** @type {number} */ value) => `≤ ${span(1_000 * value)}`;
const share = (/** @type {number} */ value) => percent(100 * value);

/** @type {Check[]} */
export const CHECKS = [
  { alert: "TidegateNotReady", severity: "critical", limit: 0, title: "Ready", text: (value) => (value > 0 ? "yes" : "no"), value: (now) => least(now, "tidegate_ready") },
  { alert: "TidegateStoreFailing", severity: "critical", limit: 0, title: "Store failures", text: count, value: (_, window) => grown(window, "failures") },
  { alert: "TidegateFiguresDisagree", severity: "critical", limit: 0, title: "Rows not accounted for", text: count, value: (_, window) => Math.min(...window.map(({ apart }) => Math.abs(apart))) },
  { alert: "TidegateLoopHeld", severity: "warning", limit: 0.25, title: "Event loop held", text: seconds, value: (_, window) => quantile(window, "loop") },
  { alert: "TidegateFlushesLate", severity: "warning", limit: 0.25, title: "Flushes late", text: seconds, value: (_, window) => quantile(window, "flush") },
  { alert: "TidegateStoreSlow", severity: "warning", limit: 0.25, title: "Store takes", text: seconds, value: (_, window) => quantile(window, "store") },
  { alert: "TidegateStoreQueue", severity: "warning", limit: 1000, title: "Writes that wait", text: count, value: (now) => total(now, "tidegate_store_queued") },
  { alert: "TidegateCheckpointOld", severity: "warning", limit: 300, title: "Last checkpoint", text: (value) => `${span(1_000 * value)} ago`, value: (now, _, nowMs) => checkpointAge(now, nowMs) },
  { alert: "TidegateCpuFull", severity: "warning", limit: 0.85, title: "Processor", text: share, value: (now, window) => rate(window, "cpu") / Math.max(1, now.workers.length) },
  { alert: "TidegateConnectionsFew", severity: "warning", limit: 0.9, title: "Connections", text: share, value: (now) => ratio(now, "tidegate_connections", "tidegate_connections_max") },
  { alert: "TidegateSessionsFew", severity: "warning", limit: 0.9, title: "Sessions", text: share, value: (now) => sessionsShare(now) },
  { alert: "TidegateDescriptorsFew", severity: "warning", limit: 0.9, title: "File descriptors", text: share, value: (now) => ratio(now, "process_open_fds", "process_max_fds") },
  { alert: "TidegateKeysFew", severity: "warning", limit: 0.9, title: "Keys of the largest topic", text: share, value: (now) => keysShare(now) },
  { alert: "TidegateConnectionsRefused", severity: "warning", limit: 0, title: "Connections refused", text: count, value: (_, window) => grown(window, "refused") },
  { alert: "TidegateQueueLimit", severity: "warning", limit: 0, title: "Sessions closed, queue full", text: count, value: (_, window) => grown(window, "full") },
  { alert: "TidegateBackPressure", severity: "warning", limit: 0, title: "Subscriptions ended, behind", text: count, value: (_, window) => grown(window, "behind") },
  { alert: "TidegatePeersFrozen", severity: "warning", limit: 0.1, title: "Connections cut a second", text: count, value: (_, window) => rate(window, "frozen") },
  { alert: "TidegateMergerFailing", severity: "warning", limit: 0, title: "Mergers failed", text: count, value: (_, window) => grown(window, "mergers") },
];

/** The health over the last five minutes, or since the first look. */
export class Health {
  /** @type {Seen[]} */
  #window = [];

  /**
   * Take a look, and return what each check finds, the worst first.
   *
   * @param {Metrics} metrics
   * @param {number} nowMs By the gateway's clock.
   * @returns {Finding[]}
   */
  take(metrics, nowMs) {
    this.#window.push(seen(metrics));
    while (metrics.at - this.#window[0].at > WINDOW_MS) this.#window.shift();
    const found = CHECKS.map((check) => findingOf(check, check.value(metrics, this.#window, nowMs)));
    const order = ["bad", "warn", "good", "unknown"];
    return found.sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state));
  }
}

/**
 * @param {Check} check
 * @param {number | null} value
 * @returns {Finding}
 */
function findingOf({ alert, severity, limit, title, text }, value) {
  const isReadiness = alert === "TidegateNotReady";
  const isKnown = value !== null && Number.isFinite(value);
  const isOver = isKnown && (isReadiness ? value === limit : value > limit);
  const state = !isKnown ? "unknown" : isOver ? (severity === "critical" ? "bad" : "warn") : "good";
  return { alert, severity, title, state, value: isKnown ? text(value) : "–", limit: isReadiness || limit === 0 ? "" : text(limit).replace(/^≤ | ago$/g, "") };
}

/**
 * @param {Metrics} metrics
 * @returns {Seen}
 */
function seen(metrics) {
  const counters = Object.fromEntries(Object.entries(COUNTERS).map(([name, [metric, labels]]) => [name, metrics.sum(/** @type {string} */ (metric), /** @type {any} */ (labels))]));
  const histograms = Object.fromEntries(Object.entries(HISTOGRAMS).map(([name, metric]) => {
    const bounds = [...new Set(metrics.of(`${metric}_bucket`).map(({ labels }) => labels.le))];
    return [name, bounds.map((le) => ({ bound: le === "+Inf" ? Infinity : Number(le), count: metrics.sum(`${metric}_bucket`, { le }) }))];
  }));
  const sum = (/** @type {string} */ name) => metrics.sum(`tidegate_topic_${name}`);
  const apart = sum("matched_total") - sum("delivered_total") - sum("conflated") - sum("waiting") - sum("dropped_total");
  return { at: metrics.at, counters, histograms, apart };
}

/**
 * @param {Seen[]} window
 * @param {string} name
 */
function grown(window, name) {
  // A counter that began again has counted since then.
  const [first, last] = [window[0].counters[name], window[window.length - 1].counters[name]];
  return last < first ? last : last - first;
}

/**
 * @param {Seen[]} window
 * @param {string} name
 */
function rate(window, name) {
  const ms = window[window.length - 1].at - window[0].at;
  return ms > 0 ? (1_000 * grown(window, name)) / ms : NaN;
}

/**
 * Return the bound below which 99 of 100 were; null of nothing.
 *
 * @param {Seen[]} window
 * @param {string} name
 */
function quantile(window, name) {
  const [first, last] = [window[0].histograms[name], window[window.length - 1].histograms[name]];
  const hasRestarted = last.some(({ count: now }, at) => now < (first[at]?.count ?? 0));
  const counts = last.map(({ bound, count: now }, at) => ({ bound, count: now - (hasRestarted ? 0 : first[at]?.count ?? 0) }));
  const all = counts.at(-1)?.count ?? 0;
  const found = all > 0 ? counts.find((each) => each.count >= 0.99 * all) : undefined;
  if (!found) return null;
  return found.bound === Infinity ? Math.max(...counts.map(({ bound }) => bound).filter(Number.isFinite)) * 1.01 : found.bound;
}

/**
 * @param {Metrics} now
 * @param {string} name
 */
function total(now, name) {
  return now.of(name).length > 0 ? now.sum(name) : null;
}

/**
 * @param {Metrics} now
 * @param {string} name
 */
function least(now, name) {
  const values = now.of(name).map(({ value }) => value);
  return values.length > 0 ? Math.min(...values) : null;
}

/**
 * @param {Metrics} now
 * @param {string} name
 * @param {string} most
 */
function ratio(now, name, most) {
  const all = total(now, most);
  return all ? now.sum(name) / all : null;
}

/** @param {Metrics} now */
function sessionsShare(now) {
  const most = now.sum("tidegate_limit", { of: "sessions" });
  return most > 0 ? (now.sum("tidegate_sessions", { state: "attached" }) + now.sum("tidegate_sessions", { state: "away" })) / most : null;
}

/** @param {Metrics} now */
function keysShare(now) {
  const most = Math.max(...now.of("tidegate_limit").filter(({ labels }) => labels.of === "topic_keys").map(({ value }) => value));
  const keys = Math.max(0, ...now.of("tidegate_topic_keys").filter(({ labels }) => labels.topic !== "(others)").map(({ value }) => value));
  return most > 0 ? keys / most : null;
}

/**
 * @param {Metrics} now
 * @param {number} nowMs
 */
function checkpointAge(now, nowMs) {
  const at = least(now, "tidegate_checkpoint_timestamp_seconds");
  return at === null ? null : Math.max(0, nowMs / 1_000 - at);
}
