/**
 * A subscription followed by long-polling, where a proxy keeps event streams back.
 *
 * Each answer says what has changed since a position, and names the next one. It becomes the events that a
 * stream would have sent, so their consumer need not know that it polls.
 *
 * @module
 */

import { Problem, Unreachable } from "./errors.js";
import { intervalOf, milliseconds } from "./interval.js";
import { NotPolled } from "./request.js";
import { Backoff, Pause } from "./retry.js";
import { topicPath } from "./transport.js";

/** @typedef {import("./subscription.js").Target} Target */
/** @typedef {import("./transport.js").Transport} Transport */

/**
 * @typedef {object} PollHandlers
 * @property {() => Promise<Record<string, string | undefined>>} query Returns what is polled: the parameters but the position.
 * @property {() => void} through Called when the first answer arrives after the start or a failure.
 * @property {(error: Error) => void} failed Called with each failure, before the wait.
 */

const BEGINNING = "-1";
const NO_CONTENT = 204; // nothing new within the time that a request waits
const PLAIN_MS_MIN = 1_000;

/** How many requests may wait at once: a browser has six connections to a gateway without HTTP/2. */
export class Waiting {
  free = 4;
}

/** One subscription, polled. */
export class Poll {
  /**
   * @param {Transport} transport
   * @param {Target} target
   * @param {Waiting} waiting Shared with the other subscriptions.
   * @param {PollHandlers} on
   */
  constructor(transport, target, waiting, on) {
    this.#transport = transport;
    this.#target = target;
    this.#waiting = waiting;
    this.#on = on;
  }

  #transport;
  #target;
  #waiting;
  #on;
  #place = BEGINNING;
  /** @type {string | undefined} */
  #cursor;
  #isInSnapshot = false;
  #stopping = new AbortController();
  #backoff = new Backoff();
  #pause = new Pause();
  /** True while answers come, and the records follow the topic. */
  isThrough = false;

  /** Poll until stopped, or until the gateway says that these options cannot be polled. */
  async run() {
    while (!this.#isStopped) {
      let waitMs = 0;
      try {
        waitMs = await this.#ask();
      } catch (error) {
        if (this.#isStopped) return;
        if (!(error instanceof Error)) throw error;
        this.isThrough = false;
        this.#on.failed(error);
        if (error instanceof NotPolled || (error instanceof Problem && error.code === "options-invalid")) return;
        waitMs = this.#backoff.waitMs(error instanceof Problem ? error.retryAfterMs : 0);
      }
      if (waitMs > 0 && !this.#isStopped) await this.#pause.wait(waitMs);
    }
  }

  /** Ask again now, where a wait is running. */
  wake() {
    this.#pause.end();
  }

  stop() {
    this.#stopping.abort();
    this.isThrough = false;
    this.#pause.end();
  }

  get #isStopped() {
    return this.#stopping.signal.aborted;
  }

  /** Ask once, and return the milliseconds until the next time. */
  async #ask() {
    const asked = await this.#on.query();
    if (this.#isStopped) return 0;
    const waits = this.#waiting.free > 0;
    // Without `live` the answer arrives at once, and occupies no connection for long.
    const query = { ...asked, offset: this.#place, live: waits ? "long-poll" : undefined, cursor: waits ? this.#cursor : undefined };
    if (waits) this.#waiting.free -= 1;
    try {
      const path = `${topicPath(this.#target.topic)}/stream`;
      const { answer, text } = await this.#transport.read("GET", path, { query, signal: this.#stopping.signal });
      if (this.#isStopped) return 0;
      const place = answer.headers.get("Stream-Next-Offset");
      if (!place) throw new Unreachable("the answer is not one of a gateway: it names no position");
      const isWhole = answer.headers.get("Stream-Up-To-Date") === "true";
      this.#give(answer.status === NO_CONTENT ? [] : this.#rowsOf(text), isWhole);
      this.#place = place;
      this.#cursor = answer.headers.get("Stream-Cursor") ?? undefined;
      if (isWhole && !this.isThrough) {
        this.isThrough = true;
        this.#backoff.succeeded();
        this.#on.through();
      }
      return waits || !isWhole ? 0 : Math.max(PLAIN_MS_MIN, milliseconds(intervalOf(asked.options)) || 0);
    } finally {
      if (waits) this.#waiting.free += 1;
    }
  }

  /**
   * Deliver what an answer says, as the events of a stream.
   *
   * @param {any[]} changes
   * @param {boolean} isWhole True if there is no more yet.
   */
  #give(changes, isWhole) {
    const { topic } = this.#target;
    const isReset = changes[0]?.headers?.control === "reset";
    if (isReset || (this.#place === BEGINNING && !this.#isInSnapshot)) {
      this.#isInSnapshot = true;
      this.#target.take("group_begin", { topic, rows: null }, "");
    }
    const rows = changes.slice(isReset ? 1 : 0).map((change) => this.#rowOf(change));
    if (rows.length > 0) this.#target.take("message", { topic, rows, more: !isWhole }, "");
    if (!isWhole || !this.#isInSnapshot) return;
    this.#isInSnapshot = false;
    this.#target.take("group_end", { topic, rows: null }, "");
  }

  /**
   * Return a change of the State Protocol as a row of an event.
   *
   * @param {any} change
   */
  #rowOf({ type: topic, key: text, value, headers, unreadable }) {
    const row = { topic, bookmark: "", ...this.#transport.parsedEvent(`{"key":${text}}`) };
    // The answer does not say why the record was removed.
    if (headers.operation === "delete") return { ...row, op: "oof", reason: "missed" };
    if (unreadable) row.unreadable = unreadable;
    return { ...row, op: this.#isInSnapshot ? "snapshot" : "publish", value };
  }

  /**
   * Return the changes in an answer; the change of an unreadable value says so.
   *
   * @param {string} text
   * @throws {Unreachable} It is no answer of a gateway.
   */
  #rowsOf(text) {
    const { rows } = this.#transport.parsedEvent(`{"rows":${text}}`);
    if (!Array.isArray(rows)) throw new Unreachable("the answer is not one of a gateway: it is no array");
    return rows;
  }
}
