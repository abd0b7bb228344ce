/**
 * The order of rows, `/price DESC,/symbol`, exactly as the gateway sorts them.
 *
 * @module
 */

import { isObject } from "./json.js";

/** @typedef {import("./replica.js").Row} Row */

/** @typedef {[number, any]} Rank The kind, null before numbers before texts, and what is compared in it. */

/**
 * @typedef {object} OrderColumn
 * @property {(string | number)[]} steps
 * @property {number} sign -1 downwards.
 * @property {boolean} asText
 */

const QUOTED = String.raw`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"`;
const ORDER_PARTS = new RegExp(`(?:${QUOTED}|[^,])+`, "gs");
const PATH_AND_WORDS = new RegExp(`^\\s*((?:${QUOTED}|[^\\s'"])*)(.*)$`, "s");
const JSONPATH_STEPS = new RegExp(`(${QUOTED})|\\[\\s*(\\d+)\\s*\\]|([^\\s.[\\]()'"$]+)`, "gs");
const PLAIN_DIGITS_MAX = 21; // a number with more has an exponent
const SMALL_KEY = 1e-4; // as a field of a key a smaller number has an exponent of two digits

/**
 * Return rows in an order; ties, and rows without an order, by the text of their keys.
 *
 * Numbers are compared as this client has read them: of one with more digits than a double the gateway
 * knows the rest as well.
 *
 * @param {Iterable<Row>} rows
 * @param {string} text A valid order; empty for none.
 */
export function inOrder(rows, text) {
  const columns = [...text.matchAll(ORDER_PARTS)].map(([part]) => columnOf(part));
  const placed = [...rows].map((row) => ({
    row,
    ranks: columns.map(({ steps, asText }) => rankOf(fieldAt(row.value, steps), asText)),
    key: row.key === null ? "" : keyText(row.key),
  }));
  placed.sort((one, other) => {
    for (let at = 0; at < columns.length; at += 1) {
      const order = compareRanks(one.ranks[at], other.ranks[at]);
      if (order !== 0) return columns[at].sign * order;
    }
    return compareTexts(one.row.topic, other.row.topic) || compareTexts(one.key, other.key);
  });
  return placed.map(({ row }) => row);
}

/**
 * Return the names and indexes of a path, `/a/b` or `$.a['b c'][0]`.
 *
 * @param {string} path A valid one.
 * @returns {(string | number)[]}
 */
export function stepsOf(path) {
  if (path.startsWith("/")) return path.slice(1).split("/");
  return [...path.matchAll(JSONPATH_STEPS)].map(([, quoted, index, name]) => {
    if (index !== undefined) return Number(index);
    return quoted === undefined ? name : quoted.slice(1, -1).replace(/\\(.)/gs, "$1");
  });
}

/**
 * Return the gateway's text of a key, by which ties are ordered.
 *
 * @param {any[]} key
 */
export function keyText(key) {
  const fields = key.map((field) => {
    const isSmall = typeof field === "number" && field !== 0 && Math.abs(field) < SMALL_KEY;
    return isSmall ? field.toExponential().replace(/e-(\d)$/, "e-0$1") : canonical(field);
  });
  return `[${fields.join(",")}]`;
}

/**
 * Return the one text of equal JSON values: 1, 1.0 and 1e0 are `1`, and names are sorted.
 *
 * @param {any} value
 * @returns {string}
 */
function canonical(value) {
  if (typeof value === "number" || typeof value === "bigint") return canonicalNumber(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.entries(value).map(([name, member]) => [JSON.stringify(name), canonical(member)]);
  return `{${members.sort(([one], [other]) => compareTexts(one, other)).map((pair) => pair.join(":")).join(",")}}`;
}

/** @param {number | bigint} number */
function canonicalNumber(number) {
  const text = String(number).replace("e+", "e");
  const digits = text.replace("-", "");
  if (typeof number === "number" || digits.length <= PLAIN_DIGITS_MAX) return text;
  const fraction = digits.slice(1).replace(/0+$/, "");
  return `${number < 0 ? "-" : ""}${digits[0]}${fraction && `.${fraction}`}e${digits.length - 1}`;
}

/**
 * @param {string} part
 * @returns {OrderColumn}
 */
function columnOf(part) {
  const [, path, rest] = /** @type {RegExpExecArray} */ (PATH_AND_WORDS.exec(part));
  const words = rest.toUpperCase().trim().split(/\s+/);
  return { steps: stepsOf(path), sign: words.includes("DESC") ? -1 : 1, asText: words.includes("TEXT") };
}

/**
 * @param {any} value
 * @param {(string | number)[]} steps
 */
function fieldAt(value, steps) {
  for (const step of steps) {
    const isThere = typeof step === "number" ? Array.isArray(value) : isObject(value) && Object.hasOwn(value, step);
    if (!isThere) return null;
    value = value[step];
  }
  return value;
}

/**
 * @param {any} value
 * @param {boolean} asText
 * @returns {Rank}
 */
function rankOf(value, asText) {
  // An array has the value of its first element here, as in filters.
  while (Array.isArray(value)) value = value[0];
  if (value === null || value === undefined || value === "" || isObject(value)) return [0, 0];
  if (typeof value === "string") return [2, value];
  return asText ? [2, canonical(value)] : [1, typeof value === "boolean" ? Number(value) : value];
}

/**
 * @param {Rank} one
 * @param {Rank} other
 */
function compareRanks(one, other) {
  if (one[0] !== other[0]) return one[0] - other[0];
  if (one[0] === 2) return compareTexts(one[1], other[1]);
  return one[1] < other[1] ? -1 : Number(one[1] > other[1]);
}

/**
 * Compare texts by code point, where `<` compares halves of surrogate pairs.
 *
 * @param {string} one
 * @param {string} other
 */
function compareTexts(one, other) {
  if (one === other) return 0;
  const length = Math.min(one.length, other.length);
  let at = 0;
  while (at < length && one.charCodeAt(at) === other.charCodeAt(at)) at += 1;
  if (at === length) return one.length - other.length;
  return unitRank(one.charCodeAt(at)) - unitRank(other.charCodeAt(at));
}

/**
 * Return a code unit as a number whose order is that of code points: surrogates come last.
 *
 * @param {number} unit
 */
function unitRank(unit) {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}
