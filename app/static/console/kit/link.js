/**
 * The console's way to its gateway: one client, one login, and what this page may do.
 *
 * @module
 */

import { connect, Problem } from "/client.js";
import { Parser } from "/client/sse.js";
import { Transport } from "/client/transport.js";
import { Connection } from "./connection.js";

/** @typedef {import("/client/transport.js").Asked} Asked */

const UNAUTHENTICATED = 401;
const READ_ONLY = "tidegate.read-only";
const READ_ONLY_REASON = "The console is read-only: switch that off above.";

/** @typedef {"read" | "write" | "admin" | "observe"} Verb */

const ANSWER_MS_MAX = 5_000; // of the request that only asks whether the gateway is there

/** The gateway that served the page; events `subject` and `mode`. */
export class Link extends EventTarget {
  constructor() {
    super();
    /** @type {import("/client.js").Gateway} */
    this.gateway = connect();
    this.transport = new Transport("");
    this.#listen();
  }

  /** @type {any} What `/v1/login` says of the subject; null without authentication. */
  subject = null;
  isReadOnly = localStorage.getItem(READ_ONLY) === "yes";
  /** Whether the gateway is there. */
  connection = new Connection();

  /** @param {Record<string, string>} headers */
  #open(headers) {
    const before = this.gateway;
    this.gateway = connect("", { headers });
    this.transport = new Transport("", { headers });
    this.#headers = headers;
    this.#listen();
    void before.close();
  }

  #listen() {
    const { gateway } = this;
    gateway.addEventListener("state", ({ detail }) => {
      if (gateway === this.gateway) this.connection.takeStream(detail.state, detail.reason);
    });
  }

  /** Ask whether the gateway is there: a screen without a stream has no other witness, and one that hangs ends no stream. */
  async check() {
    const sentAt = Date.now();
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), ANSWER_MS_MAX);
    try {
      const { answer } = await this.transport.read("GET", "/healthz", { signal: limit.signal });
      this.connection.takeAnswer(sentAt, answer.headers.get("Date"));
    } catch (error) {
      this.connection.takeSilence(sentAt, limit.signal.aborted ? `no answer in ${ANSWER_MS_MAX / 1_000} s` : reasonOf(error));
    } finally {
      clearTimeout(timer);
    }
  }

  /** @type {Record<string, string>} */
  #headers = {};

  /**
   * @param {string} name
   * @param {any} [detail]
   */
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  /**
   * Return true if the cookie of an earlier login still holds.
   *
   * Another page, such as that of a provider, may have set it as well.
   */
  async resume() {
    try {
      this.#enter(await this.ask("GET", "/v1/login"), {});
      return true;
    } catch (error) {
      if (error instanceof Problem && error.status === UNAUTHENTICATED) return false;
      throw error;
    }
  }

  /**
   * Sign in with a token: in a cookie that no script can read, where the browser takes one.
   *
   * @param {string} token
   * @throws {Problem} The token is not valid.
   */
  async signIn(token) {
    const subject = await this.ask("POST", "/v1/login", { json: { token } });
    this.#enter(subject, {});
    if (await this.resume()) return;
    // Without TLS a browser keeps no such cookie; the token then lives as long as the page.
    this.#enter(subject, { Authorization: `Bearer ${token}` });
  }

  async signOut() {
    await this.ask("DELETE", "/v1/login");
    // The gateway names this address only where the provider's login is to end as well.
    if (this.subject.logout) location.assign(this.subject.logout);
    else location.reload();
  }

  /**
   * @param {any} subject
   * @param {Record<string, string>} headers
   */
  #enter(subject, headers) {
    this.subject = subject;
    // A change by cookie needs the proof that it comes from this page.
    this.#open(headers.Authorization ? headers : { "Tidegate-CSRF": subject.csrf ?? "" });
    this.#tell("subject", subject);
  }

  /** @param {boolean} isReadOnly */
  setReadOnly(isReadOnly) {
    this.isReadOnly = isReadOnly;
    localStorage.setItem(READ_ONLY, isReadOnly ? "yes" : "no");
    this.#tell("mode", isReadOnly);
  }

  /**
   * Return why the page may not use a verb on any topic; empty if it may.
   *
   * The gateway decides; this only spares the user a refusal.
   *
   * @param {Verb} verb
   */
  obstacle(verb) {
    if (this.isReadOnly && (verb === "write" || verb === "admin")) return READ_ONLY_REASON;
    return this.#isGranted(verb) ? "" : `Your token has no grant with the verb ${verb}.`;
  }

  /** Return the name of the first screen: one that shows something to this subject. */
  get firstScreen() {
    if (this.may("observe")) return "overview";
    if (this.may("read")) return "blotter";
    return this.#isGranted("write") ? "publish" : "topics";
  }

  /** @param {Verb} verb */
  #isGranted(verb) {
    return this.subject === null || this.subject.grants.some((/** @type {any} */ grant) => [grant.can].flat().includes(verb));
  }

  /**
   * Return true if nothing is known that would keep the page from using a verb.
   *
   * @param {Verb} verb
   */
  may(verb) {
    return this.obstacle(verb) === "";
  }

  /**
   * Make a request, and return its JSON.
   *
   * @param {string} method
   * @param {string} path
   * @param {Asked} [asked]
   * @returns {Promise<any>}
   */
  ask(method, path, asked) {
    return this.transport.ask(method, path, asked);
  }

  /**
   * Make a request that changes something.
   *
   * @param {string} method
   * @param {string} path
   * @param {Asked} [asked]
   * @throws {Problem | Error} Refused by the gateway, or by the read-only mode of this page.
   */
  change(method, path, asked) {
    if (this.isReadOnly) throw new Error(READ_ONLY_REASON);
    return this.transport.ask(method, path, asked);
  }

  /**
   * Return a session of its own for a screen that shows what one subscriber gets.
   *
   * Tabs share the stream of `gateway`; whoever measures a subscriber has to be one.
   */
  apart() {
    return connect("", { headers: this.#headers, tabs: false });
  }

  /**
   * Read an event stream until it ends or is aborted.
   *
   * @param {string} path
   * @param {AbortSignal} signal
   * @param {(name: string, fields: any) => void} take
   */
  async follow(path, signal, take) {
    const answer = await this.transport.open(path, "", signal);
    const parser = new Parser();
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    signal.addEventListener("abort", () => void reader.cancel().catch(() => {}));
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return;
      for (const event of parser.feed(value)) take(event.name, this.transport.parsed(event.text));
    }
  }
}

/**
 * Return a sentence for an error.
 *
 * @param {any} error
 */
export function reasonOf(error) {
  const where = error instanceof Problem ? [error.pointer && `at ${error.pointer}`, error.line && `in line ${error.line}`] : [];
  const place = where.filter(Boolean).join(" ");
  return `${error?.message ?? error}${place && ` (${place})`}`;
}
