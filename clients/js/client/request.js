/**
 * A subscription's wish as the body of a request.
 *
 * @module
 */

import { Problem } from "./errors.js";

/** @typedef {import("./subscription.js").Target} Target */
/** @typedef {import("./subscription.js").Wish} Wish */

const REMOVALS = /(^|,)\s*oof\s*(,|$)/;
const WITH_SNAPSHOT = ["sow_and_subscribe", "sow_and_delta_subscribe"];
const WITHOUT_REMOVALS = new Set(["sow", "subscribe", "delta_subscribe"]);

const WISHES = [
  ...["interval", "filter", "orderBy", "topN", "skipN", "select"],
  ...["deltas", "command", "removals", "options", "bookmark", "hidden"],
];

/**
 * Refuse a wish with an unknown name, which would otherwise be ignored silently.
 *
 * @param {Wish} wish
 * @throws {TypeError} With the name.
 */
export function checkWish(wish) {
  checkNames("wish", wish, WISHES);
}

/**
 * Refuse unknown names.
 *
 * @param {string} kind What they are names of.
 * @param {object} given
 * @param {string[]} known
 * @throws {TypeError} With the first such name.
 */
export function checkNames(kind, given, known) {
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new TypeError(`there is no ${kind} ${unknown}; known are ${known.join(", ")}`);
}

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
 * Return true if there may be several topics.
 *
 * @param {string} topic
 */
export function isPattern(topic) {
  return /[*>]/.test(topic);
}

/**
 * Return the change that makes a subscription another wish, or null where it has to begin again.
 *
 * @param {Wish} before
 * @param {Wish} wish
 * @param {boolean} removals Whether it asks for them.
 */
export function changeOf(before, wish, removals) {
  // Where it began is not part of a change.
  const old = requestOf("", { ...before, bookmark: undefined }, wantsRemovals(before), null);
  const now = requestOf("", { ...wish, bookmark: undefined }, removals, null);
  // The command of a subscription cannot be changed. Who begins to hear of removals has to hear of the earlier ones, too.
  const isOther = old.command !== now.command || wish.bookmark !== before.bookmark || (removals && !wantsRemovals(before));
  if (isOther) return null;
  return {
    // All of them in place of the old ones: an option that was left out must not stay.
    options: old.options === now.options ? undefined : [now.options, "replace"].filter(Boolean).join(","),
    filter: old.filter === now.filter ? undefined : (now.filter ?? null),
    order_by: old.order_by === now.order_by ? undefined : (now.order_by ?? ""),
  };
}

/**
 * Return true if removals were granted.
 *
 * @param {string | null | undefined} options As granted; null for a pattern.
 */
export function hasRemovals(options) {
  return REMOVALS.test(options ?? "");
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
 * Return the parameters by which a subscription's records are polled.
 *
 * @param {Target} target
 * @param {string} granted The interval that was granted.
 * @param {string | null} slower The interval of a hidden page, in place of the granted one.
 * @throws {NotPolled} With the reason, as far as this client knows it: the gateway refuses the rest.
 */
export function polledBy({ topic, wish }, granted, slower) {
  const { options, filter, order_by, command = WITH_SNAPSHOT[0] } = requestOf(topic, wish, false, null);
  if (isPattern(topic)) throw new NotPolled("a pattern is not polled");
  if (granted === "none") throw new NotPolled("every message is asked for, and polling brings the newest of each key");
  if (!WITH_SNAPSHOT.includes(command)) throw new NotPolled(`the command ${command} is not polled`);
  const others = options.split(",").filter((part) => !/^\s*conflation\s*=/.test(part));
  const paced = slower === null ? options : [`conflation=${slower}`, ...others].filter(Boolean).join(",");
  return { options: paced || undefined, filter, order_by, format: "state" };
}

/** A subscription that only the stream can bring. */
export class NotPolled extends Error {
  /** @param {string} reason */
  constructor(reason) {
    super(`no event of the stream gets through, and polling cannot replace it: ${reason}`);
  }
}

/**
 * Ask for a subscription, and return what was granted.
 *
 * @param {Target} target
 * @param {{ wasGranted: boolean, hasRemovals: boolean }} before Whether it was granted before, and with removals.
 * @param {(body: any) => Promise<any>} post
 * @throws {Problem} Refused.
 */
export async function askFor(target, before, post) {
  const { topic, wish, place } = target;
  return withRemovalsOrNot(target, before.hasRemovals, async (/** @type {boolean} */ withRemovals) => {
    // A subscription from a bookmark is not sent removals, so one that wants them begins now.
    const from = withRemovals || isPattern(topic) ? null : place;
    const granted = await post(requestOf(topic, wish, withRemovals, from));
    if (before.wasGranted && place && !from) target.take("resumed", { topic, mode: "now", gap_messages: null, not_found: "now" }, "");
    return granted;
  });
}

/**
 * Ask with the removals that a wish wants, and without them where the gateway has none.
 *
 * @template T
 * @param {Target} target
 * @param {boolean} hadRemovals Whether they were granted before.
 * @param {(removals: boolean) => Promise<T>} ask
 * @returns {Promise<T>}
 * @throws {Problem} Refused.
 */
export async function withRemovalsOrNot(target, hadRemovals, ask) {
  const removals = wantsRemovals(target.wish);
  try {
    return await ask(removals);
  } catch (error) {
    const isRefused = error instanceof Problem && error.code === "options-invalid" && addsRemovals(target.wish);
    if (!isRefused) throw error;
    if (!hasNoRemovals(target, error)) throw explained(error);
    // Where the topic had a key, and somebody has made it again without one, deleted records would stay.
    if (hadRemovals) throw error;
    return ask(false);
  }
}

/**
 * Return true if nobody has asked for removals, and the request asks for them by itself.
 *
 * @param {Wish} wish
 */
function addsRemovals(wish) {
  return wish.removals === undefined && wantsRemovals(wish) && !REMOVALS.test(wish.options ?? "");
}

/**
 * Return true if a refusal is of the option `oof` that was added: the topic has no key.
 *
 * Only the gateway knows which topics have none, and their messages are never removed. Any other refusal
 * stands: a `conflation_key` of other fields needs a subscription without `oof`, whose records of deleted
 * messages would stay. A pattern may have topics of both kinds.
 *
 * @param {Target} target
 * @param {Problem} refusal
 */
function hasNoRemovals({ topic, wish }, { position }) {
  if (isPattern(topic)) return false;
  const { options } = requestOf(topic, { ...wish, bookmark: undefined }, true, null);
  // Positions count characters, and the length of a text counts units of UTF-16.
  return position === undefined || position === [...options].length - "oof".length;
}

/**
 * Return a refusal that says how to do without removals, if it names them.
 *
 * @param {Problem} refusal
 */
function explained(refusal) {
  const { status, document, retryAfterMs, about } = refusal;
  const detail = String(document.detail ?? "");
  if (!/\boof\b/.test(detail)) return refusal;
  return new Problem(status, { ...document, detail: `${detail.replace(/\.$/, "")}; removals: false leaves removals out.` }, retryAfterMs, about);
}
