/**
 * JSON whose integers stay exact, merge patches, and the comparison of values.
 *
 * `JSON.parse` rounds integers beyond 2^53 without a word: order 9007199254740993 becomes
 * 9007199254740992. Here such an integer is a BigInt, or its digits as text.
 *
 * @module
 */

/** @typedef {"bigint" | "text" | "number"} Integers How integers beyond 2^53 are read. */

// An integer of 16 digits or more where a value can stand. It also matches inside of strings, which
// costs time and nothing else. Decimals such as 0.30000000000000004 must not match: prices are full
// of them, and the exact reader is some twenty times slower than `JSON.parse`.
const LONG_INTEGER = /(?:^|[[:,\s])-?\d{16,}(?![\d.eE])/;
// What a text has in which a number may be beyond a double; it matches inside of strings, too.
const MAY_EXCEED_DOUBLE = /[eE][+\d]\d\d|\d{200}/;
const BEYOND_DOUBLE = "a number beyond a double";
const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;

/**
 * Return the value of a JSON text.
 *
 * @param {string} text
 * @param {Integers} [integers] `bigint` (the default), `text`, or `number`, which rounds.
 * @returns {any}
 * @throws {SyntaxError} The text is not JSON.
 * @throws {RangeError} It has a number beyond a double, such as `1e400`, which `JSON.parse` takes for infinity.
 */
export function parse(text, integers = "bigint") {
  const value = read(text, integers);
  if (MAY_EXCEED_DOUBLE.test(text) && !isReadable(value)) throw new RangeError(BEYOND_DOUBLE);
  return value;
}

/**
 * Return the fields of an event. A row with a number beyond a double has `unreadable`, the reason, and
 * no value: it must not cost the other rows. Such a key is given as its text, so that it is no record's.
 *
 * @param {string} text
 * @param {Integers} [integers]
 * @returns {any}
 * @throws {SyntaxError} The text is not JSON.
 */
export function parseEvent(text, integers = "bigint") {
  const fields = read(text, integers);
  if (!MAY_EXCEED_DOUBLE.test(text) || !isObject(fields)) return fields;
  for (const row of rowsOf(fields)) {
    if (!isObject(row)) continue;
    if (!isReadable(row.key)) Object.assign(row, { key: String(row.key), unreadable: BEYOND_DOUBLE });
    if (isReadable(row.value)) continue;
    row.value = undefined;
    if (row.op !== "oof") row.unreadable = BEYOND_DOUBLE; // the last value of a removed record does not matter
  }
  return fields;
}

/**
 * Return the rows of a message: format `batch` has many in an event, `envelope` is one itself.
 *
 * @param {Record<string, any>} fields
 * @returns {any[]}
 */
export function rowsOf(fields) {
  return Array.isArray(fields.rows) ? fields.rows : [fields];
}

/**
 * @param {string} text
 * @param {Integers} integers
 * @returns {any}
 */
function read(text, integers) {
  // Also where the exact reader follows: it reads valid texts only, and stays simple.
  const value = JSON.parse(text);
  if (integers === "number" || !LONG_INTEGER.test(text)) return value;
  return new ExactReader(text, integers === "text" ? String : BigInt).value();
}

/**
 * Return true if all numbers of a value are finite.
 *
 * @param {any} value
 * @returns {boolean}
 */
function isReadable(value) {
  if (typeof value === "number") return Number.isFinite(value);
  return value === null || typeof value !== "object" || Object.values(value).every(isReadable);
}

/** Reads a text that is known to be valid JSON. */
class ExactReader {
  /**
   * @param {string} text
   * @param {(digits: string) => any} exact Makes the value of an integer that a number cannot hold.
   */
  constructor(text, exact) {
    this.text = text;
    this.exact = exact;
    this.at = 0;
  }

  /** @returns {any} */
  value() {
    switch (this.next()) {
      case "{":
        return this.object();
      case "[":
        return this.array();
      case '"':
        return this.string();
      case "t":
        return this.word("true", true);
      case "f":
        return this.word("false", false);
      case "n":
        return this.word("null", null);
      default:
        return this.number();
    }
  }

  /** Return the next character that is no space, without passing it. */
  next() {
    while (" \t\n\r".includes(this.text[this.at])) this.at += 1;
    return this.text[this.at];
  }

  object() {
    /** @type {Record<string, any>} */
    const object = {};
    this.at += 1;
    while (this.next() !== "}") {
      const name = this.string();
      this.next();
      this.at += 1; // the colon
      const value = this.value();
      // An assignment to `__proto__` would change the prototype in place of adding a member.
      if (name === "__proto__") Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
      else object[name] = value;
      if (this.next() === ",") this.at += 1;
      this.next();
    }
    this.at += 1;
    return object;
  }

  array() {
    /** @type {any[]} */
    const items = [];
    this.at += 1;
    while (this.next() !== "]") {
      items.push(this.value());
      if (this.next() === ",") this.at += 1;
    }
    this.at += 1;
    return items;
  }

  /** @returns {string} */
  string() {
    let end = this.at + 1;
    while (this.text[end] !== '"') end += this.text[end] === "\\" ? 2 : 1;
    const token = this.text.slice(this.at, end + 1);
    this.at = end + 1;
    return JSON.parse(token);
  }

  number() {
    NUMBER.lastIndex = this.at;
    const [token, fraction, exponent] = /** @type {RegExpExecArray} */ (NUMBER.exec(this.text));
    this.at = NUMBER.lastIndex;
    const number = Number(token);
    const fits = fraction !== undefined || exponent !== undefined || Number.isSafeInteger(number);
    return fits ? number : this.exact(token);
  }

  /**
   * @template T
   * @param {string} word
   * @param {T} value
   */
  word(word, value) {
    this.at += word.length;
    return value;
  }
}

/**
 * Return the JSON text of a value; a BigInt is written as an integer.
 *
 * @param {any} value
 * @returns {string}
 */
export function stringify(value) {
  try {
    return JSON.stringify(value) ?? "null";
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    // A BigInt most likely. A value that contains itself fails here as well.
    return written(value, 0);
  }
}

/**
 * Return a message as one line of JSON.
 *
 * @param {any} message
 * @returns {string}
 * @throws {RangeError} A number is not finite, which JSON cannot represent.
 */
export function lineOf(message) {
  const line = stringify(message);
  // NaN and infinity are written as null, so only a line with null needs the walk.
  if (line.includes("null")) checkFinite(message, "");
  return line;
}

/**
 * @param {any} value
 * @param {string} path
 */
function checkFinite(value, path) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new RangeError(`${path || "the message"} is ${value}, which JSON cannot represent`);
  }
  if (value === null || typeof value !== "object") return;
  for (const [name, member] of Object.entries(value)) checkFinite(member, `${path}/${name}`);
}

const DEPTH_MAX = 64; // the gateway takes no deeper message

/**
 * @param {any} value
 * @param {number} depth
 * @returns {string}
 */
function written(value, depth) {
  if (typeof value === "bigint") return value.toString();
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  if (depth === DEPTH_MAX) throw new TypeError(`a message has at most ${DEPTH_MAX} levels`);
  if (typeof value.toJSON === "function") return written(value.toJSON(), depth + 1);
  if (Array.isArray(value)) return `[${value.map((item) => written(item, depth + 1)).join(",")}]`;
  const members = Object.entries(value).filter(([, member]) => !["undefined", "function", "symbol"].includes(typeof member));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${written(member, depth + 1)}`).join(",")}}`;
}

/**
 * Return `value` with a merge patch applied; neither is changed.
 *
 * Objects are merged member by member, null removes a member, any other value replaces the old one
 * (RFC 7396).
 *
 * @param {any} value
 * @param {any} patch
 * @returns {any}
 */
export function patched(value, patch) {
  if (!isObject(patch)) return patch;
  const merged = new Map(isObject(value) ? Object.entries(value) : []);
  for (const [name, change] of Object.entries(patch)) {
    if (change === null) merged.delete(name);
    else merged.set(name, patched(merged.get(name), change));
  }
  // Not by assignment, for the sake of a member named `__proto__`.
  return Object.fromEntries(merged);
}

/**
 * Return true if two JSON values are equal; neither the order of members counts, nor the spelling of a number.
 *
 * @param {any} one
 * @param {any} other
 * @returns {boolean}
 */
export function equal(one, other) {
  // Across types, as one number can be read as a BigInt and as a number; and -0 is 0.
  if (isNumeric(one) && isNumeric(other)) return one == other;
  if (one === other) return true;
  if (Array.isArray(one) || Array.isArray(other)) {
    return Array.isArray(one) && Array.isArray(other) && one.length === other.length && one.every((item, index) => equal(item, other[index]));
  }
  if (!isObject(one) || !isObject(other)) return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && equal(one[name], other[name]));
}

/** @param {any} value */
function isNumeric(value) {
  return typeof value === "number" || typeof value === "bigint";
}

/**
 * Return true for a JSON object: no array, and not null.
 *
 * @param {any} value
 * @returns {value is Record<string, any>}
 */
export function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
