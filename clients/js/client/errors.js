/**
 * What can go wrong: a refusal of the gateway, or no answer from it.
 *
 * @module
 */

const TEMPORARY = new Set([408, 425, 429, 500, 502, 503, 504]);
const OF_TOPIC = new Set(["topic-unknown", "options-invalid", "filter-invalid"]);
const TOO_LARGE = new Set([413, 414, 431]);

/** A refusal of the gateway: `application/problem+json` (RFC 9457). */
export class Problem extends Error {
  /**
   * @param {number} status The HTTP status.
   * @param {Record<string, any>} document The members of the problem.
   * @param {number} [retryAfterMs] The least wait before another attempt.
   * @param {string} [about] What was refused, such as `topic prices`.
   */
  constructor(status, document, retryAfterMs = 0, about = "") {
    super(messageOf(status, document, about));
    this.name = "Problem";
    this.status = status;
    this.document = document;
    /** @type {string} The stable code, such as `topic-unknown`; empty for an answer that is no problem. */
    this.code = String(document.code ?? "");
    /** @type {number | undefined} The character of the options or the filter that is wrong. */
    this.position = document.position;
    /** @type {number | undefined} The line of the request that is wrong. */
    this.line = document.line;
    /** @type {string | undefined} The field of a document that is wrong. */
    this.pointer = document.pointer;
    this.retryAfterMs = retryAfterMs;
    /** @type {string} What was refused, such as `topic prices`; empty where the request names nothing. */
    this.about = about;
  }
}

/**
 * @param {number} status
 * @param {Record<string, any>} document
 * @param {string} about
 */
function messageOf(status, { title = "", detail = "" }, about) {
  // A gateway's answer repeats nothing of a request, but for the name of an unknown topic.
  const named = about === "" || String(detail).includes(about) ? "" : ` (${about})`;
  return [(title || `status ${status}`) + named, detail].filter(Boolean).join(": ");
}

/** The gateway did not answer, or its answer broke off. */
export class Unreachable extends Error {
  /**
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(message, cause) {
    super(message, { cause });
    this.name = "Unreachable";
  }
}

/**
 * Nothing of a stream has arrived, neither its header nor its first event. A gateway sends both at once, so
 * it does not answer, or a proxy keeps the stream back.
 */
export class HeldBack extends Unreachable {}

/**
 * Return true if something else has answered, such as a proxy while the gateway is started again. That
 * passes, unless it is about the size of the request.
 *
 * @param {unknown} error
 * @returns {error is Problem}
 */
export function isForeign(error) {
  return error instanceof Problem && error.code === "" && !TOO_LARGE.has(error.status);
}

/**
 * Return true for a refusal by what the topic is at the moment. After a restart without a store that may be
 * nothing, or another topic of this name, until its publisher has made it as it was.
 *
 * @param {unknown} error
 * @returns {error is Problem}
 */
export function isOfTopic(error) {
  return error instanceof Problem && OF_TOPIC.has(error.code);
}

/**
 * Return true if a repeated request may succeed: no answer, 429, or a gateway that is out.
 *
 * @param {unknown} error
 */
export function isTemporary(error) {
  return error instanceof Unreachable || (error instanceof Problem && TEMPORARY.has(error.status));
}
