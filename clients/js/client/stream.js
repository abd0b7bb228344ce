/**
 * The event stream of a session: reopened when it is lost or silent, and resumed where it was.
 *
 * @module
 */

import { HeldBack, isForeign, isTemporary, Problem, Unreachable } from "./errors.js";
import { Backoff, Pause } from "./retry.js";
import { Parser } from "./sse.js";

/** @typedef {import("./sse.js").StreamEvent} StreamEvent */

/**
 * @typedef {object} StreamHandlers
 * @property {(lastId: string, signal: AbortSignal) => Promise<Response>} open
 * @property {(event: StreamEvent, fields: any) => void} event
 * @property {(error: unknown) => void} lost Called with each loss, before the wait.
 * @property {() => void} silent Called when nothing arrives on an open connection, before `lost`.
 * @property {() => boolean} isReplaced Returns true if polling replaces a stream that is held back.
 * @property {(text: string) => any} parsed Reads the JSON of an event.
 */

const HEARTBEATS_OF_SILENCE_MAX = 2.5; // one late heartbeat is no loss, two missing ones are
// A gateway sends header and `hello` at once. The heartbeat that `hello` names, 15 s by default, is the limit after it.
const HELLO_MS_MAX = 15_000;
const NO_CONTENT = 204; // the standard's word for "do not reconnect"

/** One stream of events over as many connections as it takes. */
export class Stream {
  /** @param {StreamHandlers} on */
  constructor(on) {
    this.#on = on;
  }

  #on;
  #lastId = "";
  #retryMs = 0;
  #silenceMsMax = HELLO_MS_MAX;
  /** @type {AbortController | null} */
  #connection = null;
  #isClosed = false;
  /** @type {string} The reason of a goodbye after which there is no return; empty without one. */
  #goodbye = "";
  /** @type {Problem | null} What the gateway has refused this connection with. */
  #refusal = null;
  #backoff = new Backoff();
  #pause = new Pause();

  /**
   * Read until the stream is over; return the reason.
   *
   * @returns {Promise<string>}
   * @throws {Problem} A refusal that another attempt would get again, such as `session-unknown`.
   * @throws {HeldBack} No event gets through, and polling replaces the stream.
   */
  async run() {
    while (!this.#isOver()) {
      /** @type {unknown} */
      let loss = new Unreachable("the stream ended");
      let retryAfterMs = 0; // only for the next attempt
      try {
        if (await this.#follow()) return this.#goodbye || "ENDED";
        loss = this.#refusal ?? loss;
      } catch (error) {
        if (this.#isOver()) break;
        if (error instanceof Problem && !isTemporary(error) && !isForeign(error)) throw error;
        if (error instanceof Problem) retryAfterMs = error.retryAfterMs;
        loss = error;
      } finally {
        this.#connection?.abort();
      }
      if (this.#isOver()) break;
      this.#on.lost(loss);
      if (loss instanceof HeldBack && this.#on.isReplaced()) throw loss;
      await this.#pause.wait(this.#backoff.waitMs(Math.max(this.#retryMs, retryAfterMs)));
    }
    return this.#goodbye || "CLOSED";
  }

  /** Try again now: the network is back, or somebody looks at the page. */
  wake() {
    this.#pause.end();
  }

  /** Drop the connection; it is opened again and resumed. */
  drop() {
    this.#connection?.abort();
  }

  /** End for good. */
  close() {
    this.#isClosed = true;
    this.#connection?.abort();
    this.#pause.end();
  }

  #isOver() {
    return this.#isClosed || this.#goodbye !== "";
  }

  /**
   * Read one connection to its end; return true if the gateway says that no other is to follow.
   *
   * @throws {Problem | Unreachable}
   */
  async #follow() {
    const connection = (this.#connection = new AbortController());
    const watchdog = new Watchdog(() => connection.abort());
    const parser = new Parser(this.#lastId);
    this.#silenceMsMax = HELLO_MS_MAX;
    this.#refusal = null;
    let isHeard = false;
    try {
      watchdog.allow(this.#silenceMsMax);
      const answer = await this.#on.open(this.#lastId, connection.signal);
      if (answer.status === NO_CONTENT) return true;
      const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
      for (;;) {
        watchdog.allow(this.#silenceMsMax);
        const { value, done } = await reader.read();
        if (done) return false;
        isHeard = true;
        for (const event of parser.feed(value)) {
          this.#take(event);
          if (this.#isClosed) return false;
        }
        // Only now: an event that could not be applied must be sent again.
        this.#lastId = parser.lastId;
        if (parser.retryMs !== null) this.#retryMs = parser.retryMs;
      }
    } catch (error) {
      if (!watchdog.hasFired) throw error;
      this.#on.silent();
      const time = `${this.#silenceMsMax / 1000} s`;
      throw isHeard ? new Unreachable(`the stream was silent for ${time}`) : new HeldBack(`no event of the stream came within ${time}`);
    } finally {
      watchdog.stop();
    }
  }

  /** @param {StreamEvent} event */
  #take(event) {
    const fields = this.#on.parsed(event.text);
    if (event.name === "hello") {
      this.#backoff.succeeded();
      if (fields.heartbeat_ms > 0) this.#silenceMsMax = HEARTBEATS_OF_SILENCE_MAX * fields.heartbeat_ms;
    } else if (event.name === "goodbye" && fields.reconnect === false) {
      this.#goodbye = String(fields.reason);
    } else if (event.name === "refused" && fields.topic === undefined) {
      this.#refusal = new Problem(fields.status, fields);
    }
    this.#on.event(event, fields);
  }
}

/** Calls `onSilence` after a silence: a lost connection may not be reported. */
class Watchdog {
  /** @param {() => void} onSilence */
  constructor(onSilence) {
    this.#onSilence = onSilence;
  }

  #onSilence;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  hasFired = false;

  /** @param {number} ms */
  allow(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.hasFired = true;
      this.#onSilence();
    }, ms);
  }

  stop() {
    clearTimeout(this.#timer);
  }
}
