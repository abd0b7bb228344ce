/**
 * What a table shows, and in which order: found, sorted, grouped, added up.
 *
 * Pure: it knows items and columns, and no element.
 *
 * @module
 */

import { stringify } from "/client.js";

/**
 * @typedef {object} Column
 * @property {string} id
 * @property {string} title
 * @property {(item: any) => any} of The value of an item.
 * @property {(value: any, item: any) => string} [text] The value as it is shown.
 * @property {"number" | "text" | "spark"} [kind] The values of `spark` are points of a line, as `spark` of `dom.js` draws it.
 * @property {number} [width] In px, if the user has chosen one.
 * @property {boolean} [isPinned]
 * @property {boolean} [isQuiet] Never flashes: a time changes with every row and says nothing.
 * @property {boolean} [ticks] Its texts change with the clock.
 * @property {Total} [total]
 * @property {(value: any, item: any) => string} [class] Classes of the cell.
 */

/** @typedef {"" | "sum" | "avg" | "min" | "max" | "count"} Total */
/** @typedef {{ id: string, isDescending: boolean }} Sort */

/**
 * A line of the table: an item, or the head of a group.
 *
 * @typedef {{ item: string } | { group: string, size: number, totals: Map<string, number | null> }} Line
 */

/** @type {[Total, string][]} */
export const TOTALS = [["", "no total"], ["sum", "sum"], ["avg", "average"], ["min", "least"], ["max", "greatest"], ["count", "number"]];

/** The lines of a table. */
export class View {
  /** @type {Column[]} */
  columns = [];
  /** @type {Sort[]} */
  sorts = [];
  /** The column by which lines are grouped; empty for none. */
  groupBy = "";
  find = "";
  /** @type {Set<string>} Groups whose items are not shown. */
  closed = new Set();
  /** @type {Line[]} */
  lines = [];
  /** @type {Map<string, number | null>} */
  totals = new Map();
  /** The number of items that are found. */
  size = 0;

  /** True if a changed value can change the order, or what is found or added up. */
  get dependsOnValues() {
    return this.sorts.length > 0 || this.groupBy !== "" || this.find !== "" || this.columns.some(({ total }) => total);
  }

  /**
   * Make the lines anew.
   *
   * @param {ReadonlyMap<string, any>} items
   */
  build(items) {
    let ids = [...items.keys()];
    const text = this.find.toLowerCase();
    if (text) ids = ids.filter((id) => this.#matches(id, items.get(id), text));
    ids = this.#sorted(ids, items);
    this.size = ids.length;
    this.totals = this.#added(ids, items);
    const group = this.columns.find(({ id }) => id === this.groupBy);
    this.lines = group ? this.#grouped(ids, items, group) : ids.map((item) => ({ item }));
  }

  /**
   * Add an item that came last, where nothing asks for another place.
   *
   * @param {string} id
   */
  append(id) {
    this.lines.push({ item: id });
    this.size += 1;
  }

  /**
   * Return where a line of before is now; its old place if it is gone.
   *
   * @param {Line} line
   * @param {number} at Its old place.
   */
  placeOf(line, at) {
    const nameOf = (/** @type {Line | undefined} */ it) => (it === undefined ? "" : "item" in it ? `i${it.item}` : `g${it.group}`);
    const name = nameOf(line);
    if (nameOf(this.lines[at]) === name) return at;
    const found = this.lines.findIndex((other) => nameOf(other) === name);
    return found < 0 ? Math.min(at, this.lines.length - 1) : found;
  }

  /**
   * @param {string} id
   * @param {any} item
   * @param {string} text
   */
  #matches(id, item, text) {
    if (id.toLowerCase().includes(text)) return true;
    return this.columns.some((column) => {
      const value = column.of(item);
      return value !== null && value !== undefined && String(value).toLowerCase().includes(text);
    });
  }

  /**
   * @param {string[]} ids
   * @param {ReadonlyMap<string, any>} items
   */
  #sorted(ids, items) {
    const sorts = this.sorts.flatMap(({ id, isDescending }) => {
      const column = this.columns.find((each) => each.id === id);
      return column ? [{ column, sign: isDescending ? -1 : 1 }] : [];
    });
    if (sorts.length === 0) return ids;
    const orders = sorts.map(({ column, sign }) => orderOf(ids.map((id) => column.of(items.get(id))), sign));
    // Places and no objects: half the time for 100,000 rows. An array, as its sort is quick where much is in order.
    const places = ids.map((_, at) => at);
    places.sort((one, other) => {
      for (const order of orders) {
        const found = order(one, other);
        if (found !== 0) return found;
      }
      return one - other;
    });
    return places.map((at) => ids[at]);
  }

  /**
   * @param {string[]} ids
   * @param {ReadonlyMap<string, any>} items
   * @param {Column} column
   * @returns {Line[]}
   */
  #grouped(ids, items, column) {
    /** @type {Map<string, string[]>} */
    const groups = new Map();
    for (const id of ids) {
      const value = column.of(items.get(id));
      const name = value === null || value === undefined ? "(none)" : typeof value === "object" ? stringify(value) : String(value);
      const held = groups.get(name);
      if (held) held.push(id);
      else groups.set(name, [id]);
    }
    const names = [...groups.keys()].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
    return names.flatMap((name) => {
      const members = groups.get(name) ?? [];
      /** @type {Line} */
      const head = { group: name, size: members.length, totals: this.#added(members, items) };
      return [head, ...(this.closed.has(name) ? [] : members.map((item) => ({ item })))];
    });
  }

  /**
   * @param {string[]} ids
   * @param {ReadonlyMap<string, any>} items
   */
  #added(ids, items) {
    const totals = new Map();
    for (const { id, of, total } of this.columns) {
      if (!total) continue;
      const numbers = [];
      for (const each of ids) {
        const value = of(items.get(each));
        if (typeof value === "number" || typeof value === "bigint") numbers.push(Number(value));
      }
      totals.set(id, totalOf(numbers, total));
    }
    return totals;
  }
}

/**
 * Return a total; null of nothing.
 *
 * @param {number[]} numbers
 * @param {Total} total
 */
export function totalOf(numbers, total) {
  if (total === "count") return numbers.length;
  if (numbers.length === 0) return null;
  if (total === "min" || total === "max") {
    return numbers.reduce((one, other) => (total === "min" ? Math.min(one, other) : Math.max(one, other)));
  }
  const sum = numbers.reduce((one, other) => one + other, 0);
  return total === "avg" ? sum / numbers.length : sum;
}

/**
 * Return a total as it is shown.
 *
 * @param {Column} column
 * @param {number | null | undefined} total
 */
export function totalText(column, total) {
  if (total === null || total === undefined) return "";
  return column.text && column.total !== "count" ? column.text(total, null) : String(total);
}

/**
 * Return the comparison of two items by their places among these values.
 *
 * @param {any[]} values
 * @param {number} sign
 * @returns {(one: number, other: number) => number}
 */
function orderOf(values, sign) {
  // Prices and sizes, which are sorted most, need no ranks.
  if (values.every((value) => typeof value === "number")) {
    const numbers = Float64Array.from(values);
    return (one, other) => sign * (numbers[one] - numbers[other]);
  }
  const ranks = values.map(rank);
  return (one, other) => sign * compared(ranks[one], ranks[other]);
}

/**
 * Return what a value is compared by: nothing, then numbers, then texts, as the gateway orders them.
 *
 * @param {any} value
 * @returns {[number, any]}
 */
function rank(value) {
  if (value === null || value === undefined || value === "") return [0, 0];
  if (typeof value === "number" || typeof value === "bigint") return [1, value];
  return [2, typeof value === "object" ? stringify(value) : String(value)];
}

/**
 * @param {[number, any]} one
 * @param {[number, any]} other
 */
function compared(one, other) {
  if (one[0] !== other[0]) return one[0] - other[0];
  return one[1] < other[1] ? -1 : Number(one[1] > other[1]);
}
