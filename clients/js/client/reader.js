/**
 * Readers of a subscription: `for await` over its changes or its rows.
 *
 * @module
 */

import { Changes } from "./replica.js";

/** @typedef {import("./replica.js").Row} Row */

/**
 * One reader of a subscription, with what it has not read yet.
 *
 * Not a generator, because a waiting generator cannot be ended from outside.
 *
 * @template T
 * @implements {AsyncIterableIterator<T>}
 */
export class Reader {
  /**
   * @internal
   * @param {Changes | null} changes What it begins with; null for a reader of rows.
   * @param {(reader: Reader<any>) => void} left Called when the reader has gone.
   */
  constructor(changes, left) {
    this.#changes = changes;
    this.#left = left;
  }

  #changes;
  #left;
  /** @type {Row[]} */
  #rows = [];
  #isOver = false;
  /** @type {Error | null} */
  #error = null;
  /** @type {{ resolve: (result: IteratorResult<any>) => void, reject: (error: Error) => void }[]} */
  #waiting = [];

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<T>>} */
  next() {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#serve();
    });
  }

  /** End the reading, at once also where a `next` waits. */
  return() {
    this.#rows = [];
    this.#changes = null;
    this.#left(this);
    this.finish(null);
    return Promise.resolve(/** @type {IteratorReturnResult<any>} */ ({ value: undefined, done: true }));
  }

  /**
   * Take rows as they arrive; a reader of changes has no use for them.
   *
   * @internal
   * @param {Row[]} rows
   */
  push(rows) {
    if (this.#changes !== null) return;
    this.#rows.push(...rows);
    this.#serve();
  }

  /**
   * Take the changes of a flush or a snapshot; a reader of rows has no use for them.
   *
   * @internal
   * @param {Changes} changes
   */
  join(changes) {
    if (this.#changes === null) return;
    this.#changes.join(changes);
    this.#serve();
  }

  /**
   * @internal
   * @param {Error | null} error
   */
  finish(error) {
    this.#isOver = true;
    this.#error = error;
    this.#serve();
  }

  #serve() {
    while (this.#waiting.length > 0 && (this.#isOver || this.#rows.length > 0 || this.#changes?.size)) {
      const [{ resolve, reject }] = this.#waiting.splice(0, 1);
      if (this.#rows.length > 0) {
        resolve({ value: this.#rows.shift(), done: false });
      } else if (this.#changes?.size) {
        resolve({ value: this.#changes, done: false });
        this.#changes = new Changes();
      } else if (this.#error) {
        reject(this.#error);
        this.#error = null;
      } else {
        resolve({ value: undefined, done: true });
      }
    }
  }
}
