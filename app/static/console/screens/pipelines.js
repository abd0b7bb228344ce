/**
 * Pipelines: their state, lag and rate; below, what other intervals would cost.
 *
 * @module
 */

import { h, watched } from "../kit/dom.js";
import { age, count, percent, span } from "../kit/formats.js";
import { Table } from "../kit/table.js";
import { SavedPlan, WhatIf } from "./whatif.js";

const TOPIC = "tidegate.pipelines";
const LOOK_MS = 3_000; // as often as a pipeline reports
const SILENT_MS = 10 * LOOK_MS;

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const number = /** @type {const} */ ("number");
  const table = new Table({
    label: "Pipelines", empty: "No pipeline has reported. Start one: tidegate pipeline run FILE.toml",
    rowClass: ({ at_ms: at }) => (link.connection.ageOf(at) > SILENT_MS ? "stale" : ""),
    columns: [
      { id: "pipeline", title: "pipeline", of: (it) => it.pipeline, isPinned: true },
      { id: "state", title: "state", of: (it) => it.state, ticks: true, text: (state, { at_ms: at }) => stateOf(state, link.connection.ageOf(at)),
        class: (state) => ({ failed: "bad", waiting: "warn", running: "good" })[/** @type {string} */ (state)] ?? "" },
      { id: "rate", title: "rows/s", kind: number, of: (it) => it.rows_per_s, text: count },
      { id: "lag", title: "behind", kind: number, of: (it) => it.lag, text: count },
      { id: "messages", title: "messages in", kind: number, of: (it) => it.messages, text: count },
      { id: "published", title: "published", kind: number, of: (it) => it.published, text: count },
      { id: "saved", title: "saved", kind: number, of: (it) => (it.messages > 0 ? 100 * (1 - it.published / it.messages) : NaN), text: percent },
      { id: "batch", title: "a batch takes", kind: number, of: (it) => it.batch_s, text: (s) => span(s === null ? null : 1_000 * s) },
      { id: "held", title: "keys held", kind: number, of: (it) => it.held_keys, text: count },
      { id: "dead", title: "dead letters", kind: number, of: (it) => it.dead_letters, text: count },
      { id: "restarts", title: "restarts", kind: number, of: (it) => it.restarts, text: count },
      { id: "at", title: "age", kind: number, ticks: true, of: (it) => it.at_ms, text: (at) => (at ? age(link.connection.ageOf(at)) : "") },
      { id: "error", title: "error", of: (it) => it.error ?? "", class: (error) => (error ? "bad" : "") },
    ],
  });
  const stop = watched(element, LOOK_MS, async () => {
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

/**
 * Return the state of a pipeline as far as it is known: one that no longer reports may have ended.
 *
 * @param {string} state
 * @param {number} ageMs
 */
export function stateOf(state, ageMs) {
  const isOver = state === "failed" || state === "ended";
  return isOver || ageMs <= SILENT_MS ? state : `silent, was ${state}`;
}
