/**
 * Intervals: the one that was granted, and the slower one of a page that nobody looks at.
 *
 * @module
 */

const HIDDEN = "5s";
const UNITS = new Map([["ns", 1e-6], ["us", 1e-3], ["ms", 1], ["s", 1e3], ["m", 6e4], ["h", 36e5], ["d", 864e5], ["w", 6048e5]]);

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
  // `none` is no duration, so nothing is longer: who asked for every message must not miss any.
  if (hidden === false) return null;
  return granted === "auto" || milliseconds(hidden) > milliseconds(granted) ? hidden : null;
}

/**
 * Return the length of a duration; NaN for a text that is none.
 *
 * @param {string} duration `500ms`.
 */
export function milliseconds(duration) {
  const found = /^(\d+)([a-z]+)$/i.exec(duration);
  return found ? Number(found[1]) * (UNITS.get(found[2].toLowerCase()) ?? NaN) : NaN;
}
