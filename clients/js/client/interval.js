/**
 * Intervals: the one that was granted, and the slower one of a hidden page.
 *
 * @module
 */

const HIDDEN = "5s";
const MS_NS = 1_000_000;
const DAY_NS = 86_400_000_000_000n;
const DURATION_NS_MAX = 36_500n * DAY_NS; // as the gateway's
const UNITS_NS = new Map([
  ["ns", 1n], ["us", 1_000n], ["ms", BigInt(MS_NS)], ["s", 1_000_000_000n],
  ["m", 60_000_000_000n], ["h", 3_600_000_000_000n], ["d", DAY_NS], ["w", 7n * DAY_NS],
]);

/**
 * Return the interval in granted options; empty where there is none.
 *
 * @param {string | null | undefined} options Null for a pattern, whose topics may differ.
 */
export function intervalOf(options) {
  return /(?:^|,)conflation=([^,]+)/.exec(options ?? "")?.[1] ?? "";
}

/**
 * Return the interval of a hidden page in place of the granted one; null to leave it.
 *
 * @param {string} granted
 * @param {string | false} [hidden] As the subscription wishes.
 */
export function slowerOf(granted, hidden = HIDDEN) {
  // `none` is no duration, so no interval is longer: a subscription to every message keeps it.
  if (hidden === false) return null;
  return granted === "auto" || milliseconds(hidden) > milliseconds(granted) ? hidden : null;
}

/**
 * Return the length of a duration; NaN for a text that the gateway would refuse.
 *
 * @param {string} duration `500ms`.
 */
export function milliseconds(duration) {
  const [, digits = "", unit = ""] = /^(\d{1,20})([a-z]+)$/i.exec(duration) ?? [];
  const unitNs = UNITS_NS.get(unit.toLowerCase());
  const durationNs = unitNs === undefined ? undefined : BigInt(digits) * unitNs;
  return durationNs === undefined || durationNs > DURATION_NS_MAX ? NaN : Number(durationNs) / MS_NS;
}
