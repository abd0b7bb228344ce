/**
 * An incremental parser of event streams (WHATWG HTML, section 9.2): bytes in, events out.
 *
 * The browser's own EventSource does not fit: it sends no header, so no token; it hides comments,
 * which tell a quiet stream from a lost one; and it decides by itself when to come back.
 *
 * @module
 */

/**
 * @typedef {object} StreamEvent
 * @property {string} name The event's name, `message` by default.
 * @property {string} text Its data.
 * @property {string} id The id of the stream at that point; empty before the first.
 */

const EVENT_CHARACTERS_MAX = 64 * 1024 * 1024; // a server that never ends a line must not fill the memory
const LINE_END = /\r\n|\n|\r/g;
const DIGITS = /^\d{1,9}$/; // up to eleven days in ms: a longer wait is a mistake

/** Turns the bytes of one connection, cut anywhere, into whole events. */
export class Parser {
  /** @param {string} [lastId] The id with which the connection was opened. */
  constructor(lastId = "") {
    /** The id of the last whole event that had one: `Last-Event-ID` of a reconnect. */
    this.lastId = lastId;
    /** @type {number | null} The wait before a reconnect that the stream asked for. */
    this.retryMs = null;
    // Bytes that are not UTF-8 are an error: a replacement character would be wrong data.
    this.#decoder = new TextDecoder("utf-8", { fatal: true });
    this.#nextId = lastId;
  }

  #decoder;
  #rest = "";
  #name = "";
  /** @type {string[]} */
  #texts = [];
  #characters = 0;
  #nextId;

  /**
   * Return the events that these bytes complete.
   *
   * @param {Uint8Array} bytes
   * @returns {StreamEvent[]}
   * @throws {TypeError} The bytes are not UTF-8.
   * @throws {RangeError} An event is too large.
   */
  feed(bytes) {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    const events = [];
    let start = 0;
    LINE_END.lastIndex = 0;
    for (let end = LINE_END.exec(text); end !== null; end = LINE_END.exec(text)) {
      // A CR at the very end may be the first half of a pair that is cut in two.
      if (end[0] === "\r" && LINE_END.lastIndex === text.length) break;
      const event = this.#line(text.slice(start, end.index));
      if (event !== null) events.push(event);
      start = LINE_END.lastIndex;
    }
    this.#rest = text.slice(start);
    if (this.#rest.length + this.#characters > EVENT_CHARACTERS_MAX) {
      throw new RangeError(`the stream has an event of more than ${EVENT_CHARACTERS_MAX} characters`);
    }
    return events;
  }

  /**
   * @param {string} line
   * @returns {StreamEvent | null}
   */
  #line(line) {
    if (line === "") return this.#finished();
    this.#characters += line.length;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let content = colon < 0 ? "" : line.slice(colon + 1);
    if (content.startsWith(" ")) content = content.slice(1);
    if (field === "data") this.#texts.push(content);
    else if (field === "event") this.#name = content;
    // The standard ignores such an id: a header, which has to carry it back, cannot hold NUL.
    else if (field === "id" && !content.includes("\0")) this.#nextId = content;
    else if (field === "retry" && DIGITS.test(content)) this.retryMs = Number(content);
    return null;
  }

  /** Return the event that a blank line ends; an id without data only moves the id. */
  #finished() {
    this.lastId = this.#nextId;
    const [name, texts] = [this.#name || "message", this.#texts];
    this.#name = "";
    this.#texts = [];
    this.#characters = 0;
    return texts.length === 0 ? null : { name, text: texts.join("\n"), id: this.lastId };
  }
}
