/**
 * What is asked for: a wish as the body of a request.
 *
 * @module
 */

import { Problem } from "./errors.js";

/** @typedef {import("./subscription.js").Target} Target */
/** @typedef {import("./subscription.js").Wish} Wish */

const REMOVALS = /(^|,)\s*oof\s*(,|$)/;
const WITHOUT_REMOVALS = new Set(["sow", "subscribe", "delta_subscribe"]);

/**
 * Return the body of the request for a wish.
 *
 * @param {string} topic
 * @param {Wish} wish
 * @param {boolean} withRemovals
 * @param {string | null} place
 */
export function requestOf(topic, wish, withRemovals, place) {
  const { interval, topN, skipN, select, options, bookmark } = wish;
  const parts = [
    interval === undefined ? "" : `conflation=${typeof interval === "number" ? `${interval}ms` : interval}`,
    topN === undefined ? "" : `top_n=${topN}`,
    skipN === undefined ? "" : `skip_n=${skipN}`,
    select === undefined ? "" : `select=${select}`,
    place || bookmark ? `bookmark=${place || bookmark}` : "",
    // A comma at the end is allowed, and two of them are not.
    (options ?? "").replace(/[\s,]+$/, ""),
    // Last, so that the positions of problems are those in the user's own options.
    withRemovals && !REMOVALS.test(options ?? "") ? "oof" : "",
  ];
  const command = wish.command ?? (wish.deltas ? "sow_and_delta_subscribe" : undefined);
  return { topic, options: parts.filter(Boolean).join(","), filter: wish.filter, order_by: wish.orderBy, command };
}

/**
 * Return the change that makes a subscription another wish, or null where it has to begin again.
 *
 * @param {Wish} before
 * @param {Wish} wish
 */
export function changeOf(before, wish) {
  const removals = wantsRemovals(wish);
  const [old, now] = [requestOf("", before, removals, null), requestOf("", wish, removals, null)];
  // A command is for life.
  if (old.command !== now.command || wish.bookmark !== before.bookmark) return null;
  return {
    // All of them in place of the old ones: an option that was left out must not stay.
    options: old.options === now.options ? undefined : [now.options, "replace"].filter(Boolean).join(","),
    filter: old.filter === now.filter ? undefined : (now.filter ?? null),
    order_by: old.order_by === now.order_by ? undefined : (now.order_by ?? ""),
  };
}

/**
 * Return true if a subscription is to ask for removals by itself.
 *
 * Without it, AMPS and Tidegate send none: a deleted order would stay on the screen for good.
 *
 * @param {Wish} wish
 */
export function wantsRemovals(wish) {
  const replays = wish.bookmark !== undefined || /(^|,)\s*bookmark\s*=/.test(wish.options ?? "");
  return wish.removals ?? !(replays || WITHOUT_REMOVALS.has(wish.command ?? ""));
}

/**
 * Ask for a subscription, and return what was granted.
 *
 * @param {Target} target
 * @param {boolean} wasGranted True if it was there before, and its session has ended.
 * @param {(body: any) => Promise<any>} post
 * @throws {Problem} Refused.
 */
export async function askFor(target, wasGranted, post) {
  const { topic, wish, place } = target;
  const isPattern = /[*>]/.test(topic);
  const removals = wantsRemovals(wish);
  const ask = async (/** @type {boolean} */ withRemovals) => {
    // A subscription from a bookmark is not sent removals, so one that wants them begins now.
    const from = withRemovals || isPattern ? null : place;
    const granted = await post(requestOf(topic, wish, withRemovals, from));
    if (wasGranted && place && !from) target.take("resumed", { topic, mode: "now", gap_messages: null }, "");
    return granted;
  };
  try {
    return await ask(removals);
  } catch (error) {
    // A topic without a key has no removals, and only the gateway knows which one that is. A pattern
    // may have both kinds: dropping them unsaid would leave deleted records on the screen.
    const isRefused = error instanceof Problem && error.code === "options-invalid";
    if (!isRefused || !removals || wish.removals || isPattern) throw error;
    return ask(false);
  }
}
