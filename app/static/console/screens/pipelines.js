/**
 * Pipelines: their state, lag and rate; below, what other intervals would cost.
 *
 * @module
 */

import { every, h } from "../kit/dom.js";
import { clock, count, percent, span } from "../kit/formats.js";
import { Table } from "../kit/table.js";
import { SavedPlan, WhatIf } from "./whatif.js";

const TOPIC = "tidegate.pipelines";
const LOOK_MS = 3_000; // as often as a pipeline reports

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const number = /** @type {const} */ ("number");
  const table = new Table({
    label: "Pipelines", empty: "No pipeline has reported. Start one: tidegate pipeline run FILE.toml",
    rowClass: ({ at_ms: at }) => (Date.now() - at > 10 * LOOK_MS ? "stale" : ""),
    columns: [
      { id: "pipeline", title: "pipeline", of: (it) => it.pipeline, isPinned: true, width: 170 },
      { id: "state", title: "state", of: (it) => it.state, width: 90, class: (state) => ({ failed: "bad", waiting: "warn", running: "good" })[/** @type {string} */ (state)] ?? "" },
      { id: "rate", title: "rows/s", kind: number, of: (it) => it.rows_per_s, text: count, width: 84 },
      { id: "lag", title: "behind", kind: number, of: (it) => it.lag, text: count, width: 84 },
      { id: "messages", title: "messages in", kind: number, of: (it) => it.messages, text: count },
      { id: "published", title: "published", kind: number, of: (it) => it.published, text: count },
      { id: "saved", title: "saved", kind: number, of: (it) => (it.messages > 0 ? 100 * (1 - it.published / it.messages) : NaN), text: percent, width: 80 },
      { id: "batch", title: "a batch takes", kind: number, of: (it) => it.batch_s, text: (s) => span(s === null ? null : 1_000 * s) },
      { id: "held", title: "keys held", kind: number, of: (it) => it.held_keys, text: count, width: 90 },
      { id: "dead", title: "dead letters", kind: number, of: (it) => it.dead_letters, text: count, width: 114 },
      { id: "restarts", title: "restarts", kind: number, of: (it) => it.restarts, text: count, width: 80 },
      { id: "at", title: "reported", of: (it) => it.at_ms, text: (at) => (at ? clock(at).slice(0, 8) : ""), width: 90 },
      { id: "error", title: "error", of: (it) => it.error ?? "", width: 320, class: (error) => (error ? "bad" : "") },
    ],
  });
  const stop = every(LOOK_MS, async () => {
    const found = await link.gateway.sow(TOPIC);
    table.show(new Map(found.map((each) => [each.pipeline, each])));
  });
  const whatIf = new WhatIf(link, query.get("topic") ?? "", (topic) => remember({ topic }));
  const plan = new SavedPlan();
  element.append(h("div", { class: "short" }, table.element), whatIf.element, plan.element);
  return () => {
    stop();
    table.close();
    whatIf.close();
    plan.close();
  };
}
