/**
 * A gateway as a program uses it: subscriptions, publishing, and the state of the world.
 *
 * @module
 */

import { lineOf } from "./json.js";
import { checkNames } from "./request.js";
import { repeated } from "./retry.js";
import { Session } from "./session.js";
import { NoticeEvent, Subscription } from "./subscription.js";
import { canShare, Tabs } from "./tabs.js";
import { topicPath, Transport } from "./transport.js";

const OPTIONS = ["token", "ticket", "headers", "credentials", "integers", "fetch", "tabs", "trouble"];
const PUBLISH_OPTIONS = ["delta", "ack", "never", "idempotencyKey", "patienceMs"];
const QUERY = ["filter", "orderBy", "topN", "skipN", "select", "asOf"];

/** @typedef {import("./subscription.js").State} State */
/** @typedef {import("./subscription.js").Wish} Wish */
/** @typedef {import("./transport.js").Asked} Asked */
/** @typedef {import("./transport.js").TransportOptions} TransportOptions */

/**
 * @typedef {object} ConnectOptions
 * @property {boolean | string} [tabs] One stream for all tabs of this origin. By default they share
 *   where the browser can and no token is used; a text names the user or whatever else must be equal.
 * @property {(sentence: string) => void} [trouble] Called when messages of a subscription are missing for good;
 *   by default `console.warn`.
 */

/**
 * @typedef {object} Place
 * @property {string} place The name under which the place is kept.
 * @property {{ getItem: (name: string) => string | null, setItem: (name: string, text: string) => void }} [storage] Where; by
 *   default `sessionStorage`, which each tab of a browser has for itself, over reloads. A program outside a browser gives its own.
 */

/**
 * @typedef {object} PublishOptions
 * @property {boolean} [delta] The messages are merge patches of the records that their keys name.
 * @property {"processed" | "persisted"} [ack]
 * @property {boolean} [never] The messages are never conflated.
 * @property {string} [idempotencyKey] Makes a repeated request safe; by default each request has one.
 * @property {number} [patienceMs] How long to repeat a request, 10 s by default; 0 for no retry.
 */

/**
 * @typedef {object} Published
 * @property {string} topic
 * @property {number} messages
 * @property {string | null} first The bookmark of the first message.
 * @property {string | null} last The bookmark of the last message.
 * @property {boolean} duplicate True if the messages had been published before.
 * @property {number} [unmatched_removals] How many removals found no record, if there are any.
 */

/**
 * @typedef {object} Query
 * @property {string} [filter]
 * @property {string} [orderBy]
 * @property {number} [topN]
 * @property {number} [skipN]
 * @property {string} [select]
 * @property {string} [asOf] The records as they were at a time.
 */

/**
 * A gateway; events `state` with `{ state, reason }` in `detail`, and `status` with the gateway's notice.
 */
export class Gateway extends EventTarget {
  /**
   * @param {string | string[]} address
   * @param {TransportOptions & ConnectOptions} [options]
   */
  constructor(address = "", options = {}) {
    super();
    checkNames("option of connect", options, OPTIONS);
    this.#trouble = options.trouble ?? ((sentence) => console.warn(sentence));
    this.#transport = new Transport(address, options);
    /** @type {State} */
    this.state = "connecting";
    const onState = (/** @type {State} */ state, /** @type {string} */ reason) => this.#enter(state, reason);
    const onNotice = (/** @type {string} */ name, /** @type {any} */ fields) => {
      this.dispatchEvent(new NoticeEvent(name, fields));
    };
    const open = (/** @type {typeof onState} */ state, /** @type {typeof onNotice} */ notice) => new Session(this.#transport, state, notice);
    const { tabs = options.token === undefined && options.ticket === undefined } = options;
    if (tabs && canShare()) {
      const name = `tidegate ${this.#transport.name} ${tabs === true ? "" : tabs}`;
      this.#connection = new Tabs(name, open, onState, onNotice);
    } else {
      this.#connection = open(onState, onNotice);
    }
    this.#watchPage();
  }

  #transport;
  #trouble;
  /** @type {Session | Tabs} */
  #connection;
  #unwatch = () => {};

  /**
   * As of any EventTarget, with the type of the event.
   *
   * @param {string} name
   * @param {((event: NoticeEvent) => void) | EventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(name, listener, options) {
    super.addEventListener(name, /** @type {any} */ (listener), options);
  }

  /**
   * Subscribe to a topic or a pattern.
   *
   * @template [V=any] The type of the records' values.
   * @param {string} topic
   * @param {Wish} [wish]
   * @returns {Subscription<V>}
   */
  subscribe(topic, wish = {}) {
    return new Subscription(this.#connection, topic, wish, this.#trouble);
  }

  /**
   * Read every message of a topic, and go on where an earlier page or program has stopped.
   *
   * The place is kept when the loop asks for the next message, so that work which was cut off is done
   * again: a message may come twice, and none is left out.
   *
   * @template [V=any] The type of the messages.
   * @param {string} topic
   * @param {Place & Wish} wish The first time it begins with `bookmark`, by default with the first message kept.
   * @returns {AsyncGenerator<import("./replica.js").Row<V>, void, void>}
   * @throws {import("./errors.js").Problem} `bookmark-expired`: messages after the place are no longer kept.
   */
  async *follow(topic, { place, storage = globalThis.sessionStorage, bookmark = "epoch", ...wish }) {
    const name = `tidegate ${place}`;
    const from = storage.getItem(name) ?? bookmark;
    const options = ["bookmark_not_found=fail", wish.options].filter(Boolean).join(",");
    /** @type {Subscription<V>} */
    const subscription = this.subscribe(topic, { interval: "none", command: "subscribe", ...wish, bookmark: from, options });
    try {
      for await (const row of subscription.messages()) {
        yield row;
        storage.setItem(name, row.bookmark);
      }
    } finally {
      await subscription.close();
    }
  }

  /**
   * Publish messages, all or none; one array is many messages.
   *
   * The request is repeated while the gateway is out, and takes effect once.
   *
   * @param {string} topic
   * @param {any} messages
   * @param {PublishOptions} [options]
   * @returns {Promise<Published>}
   * @throws {import("./errors.js").Problem} Refused; nothing was published. `line` says which message is wrong.
   */
  publish(topic, messages, options = {}) {
    const headers = { "Idempotency-Key": options.idempotencyKey ?? randomKey() };
    return this.#post(topic, messages, options, headers);
  }

  /**
   * Return a numbered producer.
   *
   * @param {string} name
   * @param {number} sequence The number of its first request, above all that it has used before.
   */
  producer(name, sequence) {
    return new Producer(name, sequence, (topic, messages, options, headers) => this.#post(topic, messages, options, headers));
  }

  /**
   * Return the records of a topic.
   *
   * @template [V=any] The type of the records.
   * @param {string} topic
   * @param {Query} [query]
   * @returns {Promise<V[]>}
   */
  sow(topic, query = {}) {
    checkNames("part of a query", query, QUERY);
    const { filter, orderBy, topN, skipN, select, asOf } = query;
    const parameters = { filter, order_by: orderBy, top_n: topN, skip_n: skipN, select, as_of: asOf };
    return this.request("GET", `${topicPath(topic)}/sow`, { query: parameters, headers: { Accept: "application/json" } });
  }

  /**
   * Return all definitions; only what has changed is fetched again.
   *
   * @returns {Promise<Record<string, any>[]>}
   */
  async topics() {
    const topics = [];
    for (let path = "/v1/topics?limit=1000"; path; ) {
      const page = await this.#transport.fresh(path);
      topics.push(...page.topics);
      path = page.next;
    }
    return topics;
  }

  /**
   * Return a topic's definition and live figures.
   *
   * @param {string} name
   */
  topic(name) {
    return this.request("GET", topicPath(name));
  }

  /**
   * Make any request of the HTTP API, and return its JSON.
   *
   * @param {string} method
   * @param {string} path
   * @param {Asked} [asked]
   * @returns {Promise<any>}
   */
  request(method, path, asked) {
    return this.#transport.ask(method, path, asked);
  }

  /** Try again now, where the stream or a subscription is lost and waits for its next attempt. */
  retry() {
    this.#connection.wake();
  }

  /** End all subscriptions and the stream. */
  async close() {
    this.#unwatch();
    await this.#connection.close();
  }

  /**
   * @param {string} topic
   * @param {any} messages
   * @param {PublishOptions} options
   * @param {Record<string, string>} headers
   */
  #post(topic, messages, options, headers) {
    checkNames("option of publish", options, PUBLISH_OPTIONS);
    const { delta, ack, never, patienceMs } = options;
    const lines = Array.isArray(messages) ? messages : [messages];
    const asked = {
      query: { ack, delta: delta ? "true" : undefined },
      headers: { ...headers, "Tidegate-Conflate": never ? "never" : undefined },
      body: lines.map(lineOf).join("\n"),
      type: "application/x-ndjson",
      member: "messages",
    };
    return repeated(() => this.#transport.ask("POST", `${topicPath(topic)}/messages`, asked), { patienceMs });
  }

  /**
   * @param {State} state
   * @param {string} reason
   */
  #enter(state, reason) {
    this.state = state;
    this.dispatchEvent(new NoticeEvent("state", { state, reason }));
  }

  /** Follow whether the page is seen, and whether the network is there. */
  #watchPage() {
    if (typeof document === "undefined") return;
    const look = () => this.#connection.setHidden(document.visibilityState === "hidden");
    const wake = () => this.#connection.wake();
    // A page in the browser's back/forward cache may return to its session.
    const leave = (/** @type {any} */ { persisted }) => persisted || this.#connection.leave();
    document.addEventListener("visibilitychange", look);
    globalThis.addEventListener("online", wake);
    globalThis.addEventListener("pagehide", leave);
    this.#unwatch = () => {
      document.removeEventListener("visibilitychange", look);
      globalThis.removeEventListener("online", wake);
      globalThis.removeEventListener("pagehide", leave);
    };
    if (document.visibilityState === "hidden") look();
  }
}

/**
 * A writer whose requests are numbered, so that each counts once, also after it has restarted.
 *
 * Requests are sent one after the other, whenever they are given.
 */
export class Producer {
  /**
   * @internal
   * @param {string} name
   * @param {number} sequence
   * @param {(topic: string, messages: any, options: PublishOptions, headers: Record<string, string>) => Promise<Published>} post
   */
  constructor(name, sequence, post) {
    this.name = name;
    /** The number of the next request; keep it across restarts. */
    this.sequence = sequence;
    this.#post = post;
  }

  #post;
  /** @type {Promise<unknown>} */
  #before = Promise.resolve();

  /**
   * Publish messages under the next number; `duplicate` in the answer if that number was used before.
   *
   * A refused request leaves its number to the next one.
   *
   * @param {string} topic
   * @param {any} messages
   * @param {PublishOptions} [options]
   * @returns {Promise<Published>}
   */
  publish(topic, messages, options = {}) {
    const published = this.#before.then(async () => {
      const headers = { "Tidegate-Producer": this.name, "Tidegate-Sequence": String(this.sequence) };
      const answer = await this.#post(topic, messages, options, headers);
      this.sequence += 1;
      return answer;
    });
    this.#before = published.catch(() => {});
    return published;
  }
}

/** Return 128 random bits as text. */
export function randomKey() {
  // Not randomUUID, which a page has only over TLS or on this machine.
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
