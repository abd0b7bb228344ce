/**
 * Whether the gateway is there, since when it is not, and how far its clock is from the browser's.
 *
 * Pure: it is told what was seen, and knows no page and no request.
 *
 * @module
 */

/** @typedef {"connecting" | "live" | "lost" | "closed"} ConnectionState */

const CLOCK_APART_MS = 2_000; // less is the second to which a Date header is exact, and the way

/** The connection, judged by the stream and by a request now and then; the event `state` tells of each change. */
export class Connection extends EventTarget {
  /** @param {() => number} [now] The browser's clock, in ms. */
  constructor(now = Date.now) {
    super();
    this.#now = now;
    /** When the state began, by that clock. */
    this.since = now();
  }

  #now;
  /** @type {ConnectionState} */
  state = "connecting";
  /** Why it was lost or closed; empty otherwise. */
  reason = "";
  #isStreamLost = false;
  #isSilent = false;
  #isClosed = false;
  #isHeard = false;
  #apartMs = 0;

  /** True while what is shown can be as new as it looks. */
  get isLive() {
    return this.state === "live";
  }

  /**
   * Take a state of the client's stream.
   *
   * @param {string} state
   * @param {string} reason
   */
  takeStream(state, reason) {
    if (state === "live" || state === "polling") {
      this.#isStreamLost = false;
      this.#isClosed = false;
      this.#isHeard = true;
    }
    // A lost client is `connecting` before each attempt, which brings nothing back yet.
    if (state === "lost") this.#isStreamLost = true;
    if (state === "closed") this.#isClosed = true;
    this.#settle(reason, this.#now());
  }

  /**
   * Take an answer to the request that only asks whether the gateway is there.
   *
   * @param {number} sentAt
   * @param {string | null} date The header `Date`.
   */
  takeAnswer(sentAt, date) {
    this.#isSilent = false;
    this.#isHeard = true;
    const now = this.#now();
    const apart = Date.parse(date ?? "") + 500 - (sentAt + now) / 2;
    if (Number.isFinite(apart)) this.#apartMs = Math.abs(apart) > CLOCK_APART_MS ? apart : 0;
    this.#settle("", now);
  }

  /**
   * Note that this request had no answer.
   *
   * @param {number} sentAt
   * @param {string} reason
   */
  takeSilence(sentAt, reason) {
    this.#isSilent = true;
    this.#settle(reason, sentAt);
  }

  /**
   * Return how old a time of the gateway is now, in ms, by the gateway's own clock.
   *
   * @param {number} at In ms since 1970.
   */
  ageOf(at) {
    return Math.max(0, this.#now() + this.#apartMs - at);
  }

  /**
   * @param {string} reason
   * @param {number} at
   */
  #settle(reason, at) {
    const isLost = this.#isStreamLost || this.#isSilent;
    const next = this.#isClosed ? "closed" : isLost ? "lost" : this.#isHeard ? "live" : "connecting";
    if (next === this.state) return;
    this.state = next;
    // The loss and not the last attempt: that is how old what is shown may be.
    this.since = at;
    this.reason = next === "lost" || next === "closed" ? reason : "";
    this.dispatchEvent(new Event("state"));
  }
}
