/**
 * Requests to one gateway: addressed, authorized, and refusals thrown as problems.
 *
 * @module
 */

import { Problem, Unreachable } from "./errors.js";
import { parse, parseEvent, stringify } from "./json.js";

/** @typedef {import("./json.js").Integers} Integers */

/**
 * @typedef {object} TransportOptions
 * @property {string | (() => string | Promise<string>)} [token] Sent as `Authorization: Bearer`. A
 *   function is called for each request, so that it can renew the token.
 * @property {() => string | Promise<string>} [ticket] Called for each opening of the stream, and sent
 *   as `?ticket=`: for pages that may not send a token. After a 401 it is called once more.
 * @property {Record<string, string>} [headers] Sent with each request.
 * @property {RequestCredentials} [credentials] As of `fetch`; `same-origin` by default.
 * @property {Integers} [integers] How integers beyond 2^53 are read.
 * @property {typeof fetch} [fetch] In place of the global one.
 */

/**
 * @typedef {object} Asked
 * @property {Record<string, string | number | undefined>} [query]
 * @property {Record<string, string | undefined>} [headers]
 * @property {any} [json] A body, written as JSON.
 * @property {BodyInit} [body] A body as it is.
 * @property {string} [type] The media type of the body.
 * @property {AbortSignal} [signal]
 * @property {boolean} [keepalive] The request outlives its page.
 * @property {string} [member] What the answer has a member of, if it is one of a gateway.
 * @property {boolean} [isStream] The request opens the stream, which a ticket may do.
 */

const ANSWER_MS_MAX = 60_000; // a commit of a million messages takes a while
const PROBLEM = "application/problem+json";
const NOT_OURS = "the answer is not one of a Tidegate gateway";
const UNAUTHENTICATED = 401;
const NO_CONTENT = 204;
const OUT = 503; // its bus is out, or it is shutting down
const NOT_MODIFIED = 304;

/** The requests to one gateway. */
export class Transport {
  /**
   * @param {string | string[]} address Such as `http://127.0.0.1:8080`; empty for the gateway that
   *   served the page. Of several that share a bus, the next one is used when one does not answer.
   * @param {TransportOptions} [options]
   */
  constructor(address, options = {}) {
    this.#addresses = [address].flat().map(checkedAddress);
    if (this.#addresses.length === 0) throw new TypeError("expected at least one address");
    /** All of them, as one text. */
    this.name = this.#addresses.join(" ");
    this.integers = options.integers ?? "bigint";
    this.#options = options;
    // Unbound, the browser's own refuses to be called.
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  #addresses;
  /** Which of them is used. */
  #at = 0;
  #options;
  #fetch;
  /** Proves to the gateway that this page may read, when a cookie says who it is. */
  #proof = "";
  /** @type {Map<string, { etag: string, document: any }>} */
  #known = new Map();

  /** The address that is used now. */
  get address() {
    return this.#addresses[this.#at];
  }

  /**
   * Return the JSON of an answer; undefined where it has none.
   *
   * @param {string} method
   * @param {string} path
   * @param {Asked} [asked]
   * @throws {Problem | Unreachable}
   */
  async ask(method, path, asked = {}) {
    const { text } = await this.#read(method, path, asked);
    try {
      const value = text === "" ? undefined : this.parsed(text);
      if (asked.member !== undefined && value?.[asked.member] === undefined) throw new Unreachable(NOT_OURS);
      return value;
    } catch (error) {
      if (error instanceof Unreachable) this.turn();
      throw error;
    }
  }

  /**
   * Return the text of an answer with its header.
   *
   * @param {string} method
   * @param {string} path
   * @param {Asked} [asked]
   * @throws {Problem | Unreachable}
   */
  read(method, path, asked = {}) {
    return this.#read(method, path, asked);
  }

  /**
   * Return a document that is fetched again only if its ETag says that it has changed.
   *
   * @param {string} path
   * @throws {Problem | Unreachable}
   */
  async fresh(path) {
    const known = this.#known.get(path);
    const { answer, text } = await this.#read("GET", path, { headers: { "If-None-Match": known?.etag } });
    if (answer.status === NOT_MODIFIED && known) return known.document;
    const document = this.parsed(text);
    const etag = answer.headers.get("ETag");
    if (etag) this.#known.set(path, { etag, document });
    return document;
  }

  /**
   * Return the open answer of an event stream; its status is 200, or 204 for a stream that is over.
   *
   * @param {string} path
   * @param {string} lastId Resume after this event; empty to begin.
   * @param {AbortSignal} signal Ends the stream.
   * @throws {Problem | Unreachable}
   */
  async open(path, lastId, signal) {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": lastId || undefined };
    const answer = await this.#send("GET", path, { headers, isStream: true, signal });
    const type = answer.headers.get("Content-Type") ?? "";
    if (answer.status !== NO_CONTENT && !type.startsWith("text/event-stream")) {
      const where = `${this.address}${path}`;
      await answer.body?.cancel();
      this.turn();
      throw new Unreachable(`${where} answered with ${type || "no media type"} in place of a stream`);
    }
    return answer;
  }

  /**
   * Return the value of an answer.
   *
   * @param {string} text
   * @throws {RangeError} It has a number beyond a double.
   */
  parsed(text) {
    return readable(() => parse(text, this.integers));
  }

  /**
   * Return the fields of an event.
   *
   * @param {string} text
   */
  parsedEvent(text) {
    return readable(() => parseEvent(text, this.integers));
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Asked} asked
   */
  async #read(method, path, asked) {
    const limit = new AbortController();
    const abort = () => limit.abort();
    const timer = setTimeout(() => {
      this.turn(); // it takes connections, and does not answer
      abort();
    }, ANSWER_MS_MAX);
    asked.signal?.addEventListener("abort", abort);
    try {
      const answer = await this.#send(method, path, { ...asked, signal: limit.signal });
      return { answer, text: await answer.text() };
    } catch (error) {
      throw error instanceof Problem || error instanceof Unreachable ? error : this.#unreachable(error);
    } finally {
      clearTimeout(timer);
      asked.signal?.removeEventListener("abort", abort); // the signal may be one of many requests
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Asked} asked
   * @returns {Promise<Response>}
   */
  async #send(method, path, asked) {
    let answer = await this.#once(method, path, asked);
    // A token or a ticket may have expired a moment ago; the function has then another one.
    const isAsked = typeof this.#options.token === "function" || (asked.isStream && this.#options.ticket !== undefined);
    if (answer.status === UNAUTHENTICATED && isAsked) {
      await answer.body?.cancel();
      answer = await this.#once(method, path, asked);
    }
    if (answer.ok || answer.status === NOT_MODIFIED) return answer;
    const problem = await problemOf(answer, asked.json?.topic ? `topic ${asked.json.topic}` : aboutOf(path));
    if (answer.status === OUT || problem.code === "") this.turn();
    if (problem.code !== "csrf" || !(await this.#renewProof())) throw problem;
    return this.#send(method, path, asked);
  }

  /** Fetch the CSRF proof that changes need in addition to a login's cookie; return whether it is new. */
  async #renewProof() {
    const answer = await this.#once("GET", "/v1/login", {});
    const { csrf = "" } = answer.ok ? JSON.parse(await answer.text()) : {};
    const isNew = csrf !== this.#proof;
    this.#proof = csrf;
    return isNew;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Asked} asked
   */
  async #once(method, path, asked) {
    // A request that changes something may have taken effect: its caller decides about a retry.
    let left = method === "GET" ? this.#addresses.length - 1 : 0;
    for (; ; left -= 1) {
      try {
        const answer = await this.#attempt(method, path, asked);
        if (answer.status !== OUT || left <= 0) return answer;
        await answer.body?.cancel();
        this.turn();
      } catch (error) {
        if (left <= 0 || asked.signal?.aborted) throw error;
      }
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Asked} asked
   */
  async #attempt(method, path, { query, headers, json, body, type, signal, keepalive, isStream }) {
    const { token } = this.#options;
    const ticket = isStream ? await this.#options.ticket?.() : undefined;
    const bearer = typeof token === "function" ? await token() : token;
    const sent = new Headers(this.#options.headers);
    const content = json === undefined ? type : "application/json";
    const own = { "Content-Type": content, Authorization: bearer && `Bearer ${bearer}`, "Tidegate-CSRF": this.#proof };
    const named = { ...headers, ...own };
    for (const [name, value] of Object.entries(named)) if (value) sent.set(name, value);
    try {
      return await this.#fetch(`${this.address}${path}${queryOf({ ...query, ticket })}`, {
        method,
        headers: sent,
        body: json === undefined ? body : stringify(json),
        signal,
        keepalive,
        // The browser's cache is never newer than the gateway.
        cache: "no-store",
        credentials: this.#options.credentials ?? "same-origin",
      });
    } catch (error) {
      const failure = this.#unreachable(error);
      // An address that was given up on purpose has not failed.
      if (!signal?.aborted) this.turn();
      throw failure;
    }
  }

  /** Use the next address from now on: this one does not answer. */
  turn() {
    this.#at = (this.#at + 1) % this.#addresses.length;
  }

  /** @param {unknown} error */
  #unreachable(error) {
    const cause = error instanceof Error ? (/** @type {any} */ (error.cause)?.code ?? error.message) : String(error);
    return new Unreachable(`Cannot reach the gateway at ${this.address || "this page's address"}: ${cause}`, error);
  }
}

/**
 * @template T
 * @param {() => T} read
 */
function readable(read) {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new Unreachable("the answer is not JSON");
  }
}

/**
 * Return the path of a topic or a pattern.
 *
 * @param {string} topic
 */
export function topicPath(topic) {
  return `/v1/topics/${encodeURIComponent(topic)}`;
}

/** @param {Record<string, string | number | undefined>} [query] */
function queryOf(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return given.length === 0 ? "" : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

/**
 * Return what the path of a request names: a topic, a record, a session, a subscription.
 *
 * @param {string} path
 */
export function aboutOf(path) {
  const [, , kind, name, part, inner] = path.split("?")[0].split("/").map(decoded);
  if (!name) return "";
  if (kind === "topics") return part === "sow" && inner ? `record ${inner} of topic ${name}` : `topic ${name}`;
  if (kind !== "sessions") return "";
  return part === "subscriptions" && inner ? `subscription ${inner} of session ${name}` : `session ${name}`;
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // the gateway refuses it; this only says what was refused
  }
}

/**
 * @param {Response} answer
 * @param {string} about
 */
async function problemOf(answer, about) {
  const text = await answer.text();
  /** @type {Record<string, any>} */
  let document = {};
  // A proxy answers with its own page, or with JSON that may have a `code`, too: its status says enough.
  if ((answer.headers.get("Content-Type") ?? "").toLowerCase().startsWith(PROBLEM)) {
    try {
      document = Object(JSON.parse(text));
    } catch {
      // cut off
    }
  }
  if (typeof document.code !== "string") document = {};
  const seconds = Number(answer.headers.get("Retry-After"));
  return new Problem(answer.status, document, seconds > 0 ? 1000 * seconds : 0, about);
}

/** @param {string} text */
function checkedAddress(text) {
  const address = text.replace(/\/+$/, "");
  if (address !== "" && !/^https?:\/\/[^/?#]+$/.test(address)) {
    throw new TypeError(`expected an address such as http://127.0.0.1:8080, not ${JSON.stringify(text)}`);
  }
  return address;
}
