/**
 * Values as texts: numbers, times, sizes, and JSON.
 *
 * @module
 */

import { stringify } from "/client.js";

/** @typedef {"auto" | "text" | "integer" | "2" | "4" | "time" | "bytes" | "percent"} Format */

/** @type {[Format, string][]} */
export const FORMATS = [
  ["auto", "automatic"], ["integer", "1,234"], ["2", "1,234.50"], ["4", "1,234.5000"], ["percent", "12.3 %"],
  ["bytes", "1.2 MB"], ["time", "time"], ["text", "as it is"],
];

const NOTHING = "–";
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 8 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
/** The most decimals of a number that is shown automatically; finer ones are written with an exponent if too little were left. */
export const DECIMALS_MAX = 8;
const FIXED = Array.from({ length: DECIMALS_MAX + 1 }, (_, digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const EXACT_DIGITS = 15; // of a double; what comes after is the noise of binary fractions
const LOST_SHARE_MAX = 1e-6; // of a number that is shown automatically
const WRITTEN_OUT_MAX = 1e21; // beyond, JavaScript itself writes an exponent
const SECONDS_OF_1990 = 6.3e8; // below, a number is hardly a time of this era in seconds
const MS_OF_1990 = SECONDS_OF_1990 * 1_000;
const NS_OF_1990 = MS_OF_1990 * 1_000_000;
const AMOUNT_NAMES = /(size|qty|quantity|volume|count|seq|sequence|offset|number)$/i;
const TIME_NAMES = /(^|\/|_)(ts|time|timestamp|at)(_?(ns|us|ms|s))?$|_at$|Time$/;

/**
 * Return a value of a message as text.
 *
 * @param {any} value
 * @param {Format} [format]
 * @param {number} [digits] The decimals of an automatic format.
 */
export function shown(value, format = "auto", digits) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return stringify(value);
  if (typeof value !== "number" && typeof value !== "bigint") return String(value);
  if (format === "text") return String(value);
  if (format === "time") return timeOf(value);
  if (format === "bytes") return bytes(Number(value));
  if (format === "percent") return `${PLAIN.format(value)} %`;
  if (format === "integer") return WHOLE.format(value);
  if (format !== "auto") return FIXED[Number(format)].format(value);
  if (typeof value === "number" && !survives(value, digits ?? DECIMALS_MAX)) return String(Number(value.toPrecision(EXACT_DIGITS)));
  return (digits === undefined ? PLAIN : FIXED[Math.min(digits, DECIMALS_MAX)]).format(value);
}

/**
 * Return true if a number with so many decimals is still that number: 1e-7 must not become 0.00.
 *
 * @param {number} number
 * @param {number} digits
 */
function survives(number, digits) {
  if (Math.abs(number) >= WRITTEN_OUT_MAX) return false;
  const kept = Math.min(digits, DECIMALS_MAX);
  return 0.5 * 10 ** -kept <= LOST_SHARE_MAX * Math.abs(number) || decimalsOf(number) <= kept;
}

/**
 * Return what writes the values of a field: times as times, numbers with equally many decimals.
 *
 * @param {string} name
 * @param {any[]} samples Values that stand below one another: ragged numbers cannot be compared.
 * @returns {(value: any) => string}
 */
export function writerOf(name, samples) {
  const most = Math.max(0, ...samples.filter((value) => typeof value === "number").map(decimalsOf));
  return (value) => {
    if (typeof value !== "number") return shown(value);
    return isTimeName(name) ? timeOf(value) : shown(value, "auto", Math.max(most, decimalsOf(value)));
  };
}

/**
 * Return the number of decimals of a number, `1.5e-7` has 8.
 *
 * @param {number} number
 */
export function decimalsOf(number) {
  const [mantissa, exponent = "0"] = String(Number(number.toPrecision(EXACT_DIGITS))).split("e");
  return Math.max(0, (mantissa.split(".")[1]?.length ?? 0) - Number(exponent));
}

/**
 * Return true for the name or path of a field whose numbers are likely times.
 *
 * @param {string} name
 */
export function isTimeName(name) {
  return TIME_NAMES.test(name);
}

/**
 * Return true for the name or path of a field whose numbers are likely amounts: they change with each message, and up or
 * down says little.
 *
 * @param {string} name
 */
export function isAmountName(name) {
  return AMOUNT_NAMES.test(name);
}

/**
 * Return true for a column whose changes do not flash unless the user wants it: a time, an amount, a name.
 *
 * @param {string} path
 * @param {Format} [format]
 */
export function isQuietAtFirst(path, format) {
  return format === "time" || !path.startsWith("/") || isAmountName(path);
}

/**
 * Return a number that is a time as text: seconds, ms, us or ns since 1970, or ms since midnight.
 *
 * @param {number | bigint} value
 */
export function timeOf(value) {
  const number = Number(value);
  let ms = number;
  if (number > NS_OF_1990) ms = number / 1e6;
  else if (number > MS_OF_1990 * 1_000) ms = number / 1e3;
  else if (number < MS_OF_1990 && number > SECONDS_OF_1990) ms = number * 1_000;
  // Market data often count from midnight: no date, and no time zone to convert from.
  if (ms < 86_400_000) return new Date(ms).toISOString().slice(11, 23);
  return clock(ms);
}

/**
 * Return the local time of day with milliseconds.
 *
 * @param {number} ms
 */
export function clock(ms) {
  const at = new Date(ms);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * Return a count or a rate; a dash where there is none.
 *
 * @param {number | null | undefined} value
 */
export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  if (Math.abs(value) >= 1e6) return SHORT.format(value);
  return Math.abs(value) >= 10 || Number.isInteger(value) ? WHOLE.format(value) : value.toFixed(1);
}

/** @param {number | null | undefined} value */
export function percent(value) {
  return value === null || value === undefined || !Number.isFinite(value) ? NOTHING : `${value.toFixed(1)} %`;
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (Math.abs(value) >= 1_000 && at < units.length - 1) {
    value /= 1_000;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? WHOLE.format(value) : value.toFixed(1)} ${units[at]}`;
}

/**
 * Return a time span in the largest unit that fits.
 *
 * @param {number | null | undefined} ms
 */
export function span(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return NOTHING;
  if (ms < 1) return `${(ms * 1_000).toFixed(0)} us`;
  if (ms < 1_000) return `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${(ms / 60_000).toFixed(0)} min`;
  return ms < 86_400_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 86_400_000).toFixed(1)} d`;
}

/**
 * Return how old something is, in whole seconds: what is written once a second has no tenths.
 *
 * @param {number | null | undefined} ms
 */
export function age(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return NOTHING;
  const seconds = Math.floor(Math.max(0, ms) / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3_600), Math.floor(seconds / 86_400)];
  if (hours < 1) return `${minutes} min ${seconds % 60} s`;
  return days < 1 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

/**
 * Return a number of things.
 *
 * @param {number} number
 * @param {string} noun In the singular.
 */
export function things(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/**
 * Return a value as JSON on several lines; integers stay exact.
 *
 * @param {any} value
 * @param {string} [indent]
 * @returns {string}
 */
export function pretty(value, indent = "") {
  if (value === null || typeof value !== "object") return stringify(value);
  const isList = Array.isArray(value);
  // A short list of plain values reads better on one line.
  if (isList && value.every((item) => item === null || typeof item !== "object") && stringify(value).length < 60) return `[${value.map((item) => stringify(item)).join(", ")}]`;
  const inner = `${indent}  `;
  const items = isList
    ? value.map((item) => pretty(item, inner))
    : Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}: ${pretty(member, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  return items.length === 0 ? open + close : `${open}\n${inner}${items.join(`,\n${inner}`)}\n${indent}${close}`;
}

/**
 * Return what is shown of a value so that no spreadsheet runs it: a text may begin like a formula.
 *
 * @param {any} value
 * @param {string} shown
 */
export function inert(value, shown) {
  // With the wide forms, which some spreadsheets take for the narrow ones.
  return typeof value === "string" && /^[=+\-@\t\r\n＝＋－＠]/.test(shown) ? `'${shown}` : shown;
}

/**
 * Return rows as CSV (RFC 4180).
 *
 * @param {any[][]} rows
 */
export function csv(rows) {
  const cell = (/** @type {any} */ value) => {
    const text = value === null || value === undefined ? "" : typeof value === "object" ? stringify(value) : String(value);
    const safe = inert(value, text);
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

const BROWSERS = /** @type {[RegExp, string][]} */ ([[/Edg\/(\d+)/, "Edge"], [/Firefox\/(\d+)/, "Firefox"], [/Chrome\/(\d+)/, "Chrome"], [/Version\/(\d+).*Safari/, "Safari"]]);

/**
 * Return the short name of a client: browsers call themselves by everything that ever was one.
 *
 * @param {string | null} agent The header `User-Agent`.
 */
export function clientOf(agent) {
  if (!agent?.startsWith("Mozilla/")) return agent ?? "";
  for (const [pattern, name] of BROWSERS) {
    const found = pattern.exec(agent);
    if (found) return `${name} ${found[1]}`;
  }
  return agent;
}
