/**
 * One subscription: its records, its changes, and its notices.
 *
 * @module
 */

import { Problem } from "./errors.js";
import { inOrder } from "./order.js";
import { Reader } from "./reader.js";
import { Changes, Replica } from "./replica.js";
import { checkWish } from "./request.js";

/**
 * @template [V=any]
 * @typedef {import("./replica.js").Row<V>} Row
 */

/**
 * `connecting`: asked for, and the records are not complete yet. `live`: the records are complete and
 * follow the topic. `polling`: they do, by long-polling, as no event of the stream gets through. `lost`:
 * they are old, and another attempt follows. `closed`: nothing follows.
 *
 * @typedef {"connecting" | "live" | "polling" | "lost" | "closed"} State
 */

const HOLD_MS_MAX = 500; // of rows whose flush goes on: what is to follow may be nothing for this reader

/**
 * What to subscribe to. Texts are those of the HTTP API.
 *
 * @typedef {object} Wish
 * @property {string | number} [interval] At most one update of a key in this time: `500ms`, a number
 *   of milliseconds, `auto`, or `none` for every message.
 * @property {string} [filter] Only messages that match, `/desk = 'a' AND /price > 10`.
 * @property {string} [orderBy] The order of the snapshot, of a window, and of `inOrder()`.
 * @property {number} [topN] Only the first records by `orderBy`, live.
 * @property {number} [skipN] Without so many first records.
 * @property {string} [select] Which fields to send, `[-/,+/price]`.
 * @property {boolean} [deltas] Send changed fields only; the records here stay whole.
 * @property {string} [command] In place of the one that `deltas` gives.
 * @property {boolean} [removals] Ask for removals; true by default, where the topic has keys.
 * @property {string} [options] More options, in the gateway's own language.
 * @property {string} [bookmark] Begin with all messages after this bookmark, or from `epoch` or a time.
 * @property {string | false} [hidden] The interval while the page is hidden, `5s` by default; false to
 *   leave it.
 */

/**
 * Changed records: `added`, `changed` and `removed`.
 *
 * @template [V=any]
 */
export class ChangeEvent extends Event {
  /** @param {Changes<V>} changes */
  constructor(changes) {
    super("change");
    this.added = changes.added;
    this.changed = changes.changed;
    this.removed = changes.removed;
  }
}

/**
 * Rows as they came, each message of a subscription without interval included.
 *
 * @template [V=any]
 */
export class RowsEvent extends Event {
  /** @param {Row<V>[]} rows */
  constructor(rows) {
    super("rows");
    this.rows = rows;
  }
}

/** A notice of the gateway; `detail` has its fields. */
export class NoticeEvent extends Event {
  /**
   * @param {string} name
   * @param {any} detail
   */
  constructor(name, detail) {
    super(name);
    this.detail = detail;
  }
}

/**
 * The events that are no notices.
 *
 * @template [V=any]
 * @typedef {{ change: ChangeEvent<V>, rows: RowsEvent<V> }} Events
 */

/**
 * The connection of a subscription to its gateway: a session, or the stream that tabs share.
 *
 * @typedef {object} Connection
 * @property {(target: Target) => void} add
 * @property {(target: Target) => Promise<void>} remove
 * @property {(target: Target, before: Wish) => Promise<void>} change
 */

/**
 * What a connection delivers to.
 *
 * @typedef {object} Target
 * @property {string} topic
 * @property {Wish} wish
 * @property {string | null} place As of {@link placeAfter}.
 * @property {(granted: any) => void} accepted
 * @property {(state: State, reason: string, code?: string) => void} entered
 * @property {(name: string, fields: any, id: string) => void} take
 * @property {(error: Error) => void} failed
 * @property {(reason: string) => void} ended
 */

/**
 * A live copy of the records of a topic or a pattern.
 *
 * Events: `change` ({@link ChangeEvent}), one for each snapshot and each flush; `rows` ({@link RowsEvent}),
 * as they arrive; `state` with `{ state, reason, code }` in `detail`; `ended` with the reason;
 * `unreadable` with `{ topic, key, reason }` of a record whose value cannot be read; and the gateway's
 * notices by their names, such as `resumed`, `late` and `conflation` ({@link NoticeEvent}).
 *
 * `for await (const changes of subscription)` reads the same changes; a reader that is behind gets
 * several flushes as one, so it needs memory for its keys and no more.
 *
 * @template [V=any] The type of the records' values: `gateway.subscribe<Quote>("quotes")`.
 */
export class Subscription extends EventTarget {
  /**
   * @internal
   * @param {Connection} connection
   * @param {string} topic
   * @param {Wish} wish
   * @param {(sentence: string) => void} [trouble] Called for messages that are missing for good.
   */
  constructor(connection, topic, wish, trouble = () => {}) {
    super();
    checkWish(wish);
    this.#trouble = trouble;
    this.topic = topic;
    /** @type {Wish} */
    this.wish = wish;
    /** @type {State} */
    this.state = "connecting";
    /** @type {string} Why it is `polling`, `lost` or `closed`, in one line for a log or a tooltip. */
    this.reason = "";
    /** @type {string} The code of the refusal that is the reason; empty without one. */
    this.code = "";
    /** @type {string} Why it has ended, in one word: a code, or such as `REMOVED`; empty while it lives. */
    this.end = "";
    /**
     * @internal
     * @type {string | null}
     */
    this.place = "";
    this.#connection = connection;
    this.#replica = new Replica(/[*>]/.test(topic));
    this.#grant = settleable();
    this.#whole = settleable();
    /** @type {Promise<any>} What was granted; rejected with the problem of a refusal. */
    this.granted = this.#grant.promise;
    /**
     * Resolved once the records are complete for the first time; rejected with the problem of a refusal.
     *
     * @type {Promise<void>}
     */
    this.ready = this.#whole.promise;
    // A refusal also arrives as the event `ended`: nobody has to wait for either.
    this.granted.catch(() => {});
    this.ready.catch(() => {});
    connection.add(this);
  }

  #connection;
  #trouble;
  #replica;
  #grant;
  #whole;
  /**
   * The changes without a `change` event yet: the flush or the snapshot goes on.
   *
   * @type {Changes<V>}
   */
  #untold = new Changes();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #holding;
  /** @type {Set<Reader<any>>} */
  #readers = new Set();
  /** @type {Error | null} */
  #error = null;

  /**
   * As of any EventTarget, with the type of the event.
   *
   * @template {string} Name
   * @param {Name} name
   * @param {((event: Name extends keyof Events<V> ? Events<V>[Name] : NoticeEvent) => void) | EventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(name, listener, options) {
    super.addEventListener(name, /** @type {any} */ (listener), options);
  }

  /**
   * The records by id, in the order of their arrival.
   *
   * @returns {ReadonlyMap<string, Row<V>>}
   */
  get rows() {
    // A record that was read here must not be an added one in a later event.
    this.#tell();
    return this.#replica.rows;
  }

  /**
   * Return the record of a key; undefined if it is not held.
   *
   * @param {...any} key The fields of the key, `get("IBM", 7)`.
   * @returns {Row<V> | undefined}
   */
  get(...key) {
    return this.rows.get(this.#replica.idOf(key, this.topic));
  }

  /**
   * Return the records by `orderBy`, ties by key.
   *
   * @returns {Row<V>[]}
   */
  inOrder() {
    return inOrder(this.rows.values(), this.wish.orderBy ?? "");
  }

  /**
   * Change what is subscribed to; the records follow. Fields that are not given stay.
   *
   * @param {Wish} change
   * @throws {Problem} Refused; nothing was changed.
   */
  async change(change) {
    checkWish(change);
    const before = this.wish;
    this.wish = { ...before, ...change };
    try {
      await this.#connection.change(this, before);
    } catch (error) {
      this.wish = before;
      throw error;
    }
  }

  /** End the subscription; the records stay as they are. */
  async close() {
    if (this.end) return;
    this.ended("REQUESTED");
    await this.#connection.remove(this);
  }

  /**
   * Read the changes from now on; the first are the records that are held already.
   *
   * @returns {Reader<Changes<V>>}
   */
  [Symbol.asyncIterator]() {
    const held = new Changes();
    for (const row of this.rows.values()) held.put(row, true);
    return this.#reader(held);
  }

  /**
   * Read every row from now on, in order: for subscriptions without interval.
   *
   * @returns {Reader<Row<V>>}
   */
  messages() {
    return this.#reader(null);
  }

  /** @param {Changes | null} changes */
  #reader(changes) {
    const reader = new Reader(changes, (left) => this.#readers.delete(left));
    if (this.end) reader.finish(this.#error);
    else this.#readers.add(reader);
    return reader;
  }

  /**
   * @internal
   * @param {any} granted
   */
  accepted(granted) {
    this.#untold.join(this.#replica.begin(granted.topics));
    this.place = placeOf(this.place, granted);
    this.#grant.resolve(granted);
  }

  /**
   * @internal
   * @param {State} state
   * @param {string} reason
   * @param {string} [code] Of the problem that is the reason, such as `limit-reached`.
   */
  entered(state, reason, code = "") {
    if (!this.end && (state !== this.state || reason !== this.reason)) this.#enter(state, reason, code);
  }

  /**
   * @param {State} state
   * @param {string} reason
   * @param {string} code
   */
  #enter(state, reason, code) {
    this.#tell();
    this.state = state;
    this.reason = reason;
    this.code = code;
    if (state === "live" || state === "polling") this.#whole.resolve(undefined);
    this.dispatchEvent(new NoticeEvent("state", { state, reason, code }));
  }

  /**
   * Apply an event of the stream.
   *
   * @internal
   * @param {string} name
   * @param {any} fields
   * @param {string} id
   * @throws {import("./replica.js").RecordMissing} After all that could be applied.
   */
  take(name, fields, id) {
    if (this.end) return;
    const { rows, changes, missing, unreadable } = this.#replica.take(name, fields);
    this.place = placeAfter(this.place, name, fields, id);
    if (rows.length > 0) this.dispatchEvent(new RowsEvent(rows));
    for (const reader of this.#readers) reader.push(rows);
    this.#untold.join(changes);
    if (fields.more) this.#holding ??= setTimeout(() => this.#tell(), HOLD_MS_MAX);
    else if (!this.#replica.isInSnapshot) this.#tell();
    if (name !== "message") this.dispatchEvent(new NoticeEvent(name, fields));
    if (name === "resumed" && fields.not_found) this.#trouble(sentenceOf(fields));
    for (const { topic, key = null, unreadable: reason } of unreadable) {
      this.dispatchEvent(new NoticeEvent("unreadable", { topic, key, reason }));
    }
    if (missing) throw missing;
  }

  /** Dispatch the changes so far. */
  #tell() {
    clearTimeout(this.#holding);
    this.#holding = undefined;
    const changes = this.#untold;
    if (changes.size === 0) return;
    this.#untold = new Changes();
    this.dispatchEvent(new ChangeEvent(changes));
    for (const reader of this.#readers) reader.join(changes);
  }

  /**
   * @internal
   * @param {Error} error
   */
  failed(error) {
    this.#error = error;
    this.ended(error instanceof Problem ? error.code : error.message);
  }

  /**
   * @internal
   * @param {string} reason
   */
  ended(reason) {
    if (this.end) return;
    this.end = reason;
    this.#enter("closed", this.#error?.message ?? reason, this.#error instanceof Problem ? this.#error.code : "");
    const error = this.#error ?? new Error(`the subscription to ${this.topic} has ended: ${reason}`);
    this.#grant.reject(error);
    this.#whole.reject(error);
    for (const reader of this.#readers) reader.finish(this.#error);
    this.#readers.clear();
    this.dispatchEvent(new NoticeEvent("ended", { reason, error: this.#error }));
  }
}

/**
 * Return a sentence for a `resumed` that says that messages are missing for good.
 *
 * @param {{ topic: string, mode: string, gap_messages: number | null, not_found: string }} resumed
 */
function sentenceOf({ topic, mode, gap_messages: gap, not_found: instead }) {
  const missing = gap === null ? "messages" : `up to ${gap} messages`;
  const follows = mode === "now" ? "new messages follow" : `${instead === "epoch" ? "all that is kept" : "a snapshot"} follows`;
  return `${topic}: ${missing} are missing for good; ${follows}`;
}

/** Return a promise with the functions that settle it. */
function settleable() {
  /** @type {(value: any) => void} */
  let resolve = () => {};
  /** @type {(error: Error) => void} */
  let reject = () => {};
  const promise = new Promise((/** @type {(value: any) => void} */ resolved, rejected) => {
    resolve = resolved;
    reject = rejected;
  });
  return { promise, resolve, reject };
}

/**
 * Return where a subscription goes on, as the answer to its request says: before any event came.
 *
 * @param {string | null} before
 * @param {{ bookmark?: string }} granted
 */
export function placeOf(before, granted) {
  return before === "" ? (granted.bookmark ?? "") : before;
}

/**
 * Return where a subscription goes on if its session is gone, as known after an event.
 *
 * Null for a subscription that begins with a snapshot: it does so again.
 *
 * @param {string | null} before
 * @param {string} name
 * @param {any} fields
 * @param {string} id `<session>-<number>~<bookmark>`.
 */
export function placeAfter(before, name, fields, id) {
  // A snapshot in place of a replay, as the journal was trimmed, does not change the kind.
  if (before === null || (name === "group_begin" && before === "")) return null;
  if (name === "subscribed") return fields.bookmark ?? before;
  return id.split("~")[1] ?? before;
}
