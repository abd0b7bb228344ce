/**
 * The waits between attempts, and requests that are repeated.
 *
 * @module
 */

import { isForeign, isTemporary, Problem } from "./errors.js";

const FIRST_MS = 250;
// Of a stream, or a subscription: someone looks at old records. With the gateway's own `retry:`, 1 to 5 s, the readers
// of a gateway come back spread over ten seconds.
const RETURN_MOST_MS = 5_000;
const REQUEST_MOST_MS = 2_000; // of a request: someone waits for its answer
const PATIENCE_MS = 10_000;

/**
 * Full jitter: each wait is anything up to a bound that doubles with every failure in a row.
 *
 * Pages that lost their gateway at the same moment then come back at different ones.
 */
export class Backoff {
  /**
   * @param {number} [mostMs] The bound that no wait's own jitter exceeds.
   * @param {() => number} [chance] Draws from 0 to 1; for tests.
   */
  constructor(mostMs = RETURN_MOST_MS, chance = Math.random) {
    this.#mostMs = mostMs;
    this.#chance = chance;
  }

  #mostMs;
  #chance;
  #failures = 0;

  /** Begin again with a first wait. */
  succeeded() {
    this.#failures = 0;
  }

  /**
   * Return the milliseconds to wait now: what the gateway asked for, plus jitter.
   *
   * @param {number} [askedMs]
   */
  waitMs(askedMs = 0) {
    const bound = Math.min(this.#mostMs, FIRST_MS * 2 ** this.#failures);
    this.#failures = Math.min(this.#failures + 1, 60);
    return askedMs + this.#chance() * bound;
  }
}

/** A wait that can be cut short. */
export class Pause {
  /** @type {(() => void) | null} */
  #end = null;

  /**
   * Resolve after so many milliseconds, or at the next call of `end`.
   *
   * @param {number} ms
   * @returns {Promise<void>}
   */
  wait(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.end(), ms);
      this.#end = () => {
        clearTimeout(timer);
        this.#end = null;
        resolve();
      };
    });
  }

  /** End the present wait, if there is one. */
  end() {
    this.#end?.();
  }
}

/**
 * Return the answer of `ask`, calling it until it succeeds or time is up.
 *
 * A wait is never shorter than the `Retry-After` of the failure, where it has one.
 *
 * @template T
 * @param {() => Promise<T>} ask Sends the request, the same one each time.
 * @param {object} [given]
 * @param {number} [given.patienceMs] Counted from the first failure; 0 for no retry.
 * @param {(error: unknown) => boolean} [given.isWorth] True if another attempt may succeed.
 * @param {(error: unknown) => void} [given.onRetry] Called before each wait.
 * @returns {Promise<T>}
 */
export async function repeated(ask, given = {}) {
  const { patienceMs = PATIENCE_MS, isWorth = (error) => isTemporary(error) || isForeign(error), onRetry = () => {} } = given;
  const backoff = new Backoff(REQUEST_MOST_MS);
  let giveUpAt = Infinity;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!isWorth(error)) throw error;
      const now = performance.now();
      // Counted from the first failure: the time of a slow answer does not count.
      if (giveUpAt === Infinity) giveUpAt = now + patienceMs;
      const waitMs = backoff.waitMs(error instanceof Problem ? error.retryAfterMs : 0);
      // Now and not after the wait: the caller would get the same error later.
      if (now + waitMs >= giveUpAt) throw error;
      onRetry(error);
      await new Pause().wait(waitMs);
    }
  }
}
