/**
 * The event stream of a session: reopened when it is lost or silent, and resumed where it was.
 *
 * @module
 */

import { isForeign, isTemporary, Problem, Unreachable } from "./errors.js";
import { Backoff, Pause } from "./retry.js";
import { Parser } from "./sse.js";

/** @typedef {import("./sse.js").StreamEvent} StreamEvent */

/**
 * @typedef {object} StreamHandlers
 * @property {(lastId: string, signal: AbortSignal) => Promise<Response>} open
 * @property {(event: StreamEvent, fields: any) => void} event
 * @property {(error: unknown) => void} lost Called with each loss, before the wait.
 * @property {(text: string) => any} parsed Reads the JSON of an event.
 */

const HEARTBEATS_OF_SILENCE_MAX = 2.5; // one late heartbeat is no loss, two missing ones are
const HELLO_MS_MAX = 30_000; // until `hello` gives the heartbeat, by which silence is judged
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
  #backoff = new Backoff();
  #pause = new Pause();

  /**
   * Read until the stream is over; return the reason.
   *
   * @returns {Promise<string>}
   * @throws {Problem} A refusal that another attempt would get again, such as `session-unknown`.
   */
  async run() {
    while (!this.#isOver()) {
      /** @type {unknown} */
      let loss = new Unreachable("the stream ended");
      try {
        const answer = await this.#open();
        if (answer.status === NO_CONTENT) return this.#goodbye || "ENDED";
        await this.#follow(answer);
      } catch (error) {
        if (this.#isOver()) break;
        if (error instanceof Problem && !isTemporary(error) && !isForeign(error)) throw error;
        if (error instanceof Problem) this.#retryMs = Math.max(this.#retryMs, error.retryAfterMs);
        loss = error;
      } finally {
        this.#connection?.abort();
      }
      if (this.#isOver()) break;
      this.#on.lost(loss);
      await this.#pause.wait(this.#backoff.waitMs(this.#retryMs));
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

  async #open() {
    this.#connection = new AbortController();
    return this.#on.open(this.#lastId, this.#connection.signal);
  }

  /** @param {Response} answer */
  async #follow(answer) {
    const parser = new Parser(this.#lastId);
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    const watchdog = new Watchdog(() => this.#connection?.abort());
    this.#silenceMsMax = HELLO_MS_MAX;
    try {
      for (;;) {
        watchdog.allow(this.#silenceMsMax);
        const { value, done } = await reader.read();
        if (done) return;
        for (const event of parser.feed(value)) {
          this.#take(event);
          if (this.#isClosed) return;
        }
        // Now and not before: an event that could not be applied has to come again.
        this.#lastId = parser.lastId;
        if (parser.retryMs !== null) this.#retryMs = parser.retryMs;
      }
    } catch (error) {
      throw watchdog.hasBitten ? new Unreachable(`the stream was silent for ${this.#silenceMsMax / 1000} s`) : error;
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
    }
    this.#on.event(event, fields);
  }
}

/** Bites after a silence; a stream of which nothing is heard may be dead without anybody knowing. */
class Watchdog {
  /** @param {() => void} bite */
  constructor(bite) {
    this.#bite = bite;
  }

  #bite;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  hasBitten = false;

  /** @param {number} ms */
  allow(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.hasBitten = true;
      this.#bite();
    }, ms);
  }

  stop() {
    clearTimeout(this.#timer);
  }
}
