/**
 * One session for many subscriptions: one stream, whatever a page shows.
 *
 * @module
 */

import { HeldBack, isForeign, isOfTopic, isTemporary, Problem } from "./errors.js";
import { intervalOf, slowerOf } from "./interval.js";
import { Poll, Waiting } from "./poll.js";
import { RecordMissing } from "./replica.js";
import { askFor, changeOf, hasRemovals, isPattern, NotPolled, polledBy, wantsRemovals, withRemovalsOrNot } from "./request.js";
import { Backoff, Pause } from "./retry.js";
import { Stream } from "./stream.js";

/** @typedef {import("./sse.js").StreamEvent} StreamEvent */
/** @typedef {import("./subscription.js").State} State */
/** @typedef {import("./subscription.js").Target} Target */
/** @typedef {import("./subscription.js").Wish} Wish */
/** @typedef {import("./transport.js").Transport} Transport */

const STREAM_AGAIN_MS = 120_000; // while subscriptions are polled: the proxy may let streams through by then
const HIDDEN_AFTER_MS = 1_000; // a short visit to another tab changes nothing
const REPLAY = /(?:^|,)bookmark=/; // in granted options
const BACK_PRESSURE = "BACK_PRESSURE";
const BOOKMARK_EXPIRED = "BOOKMARK_EXPIRED";
const COMES_AGAIN = new Set([BACK_PRESSURE, "UNUSABLE"]); // reasons of an end that may pass

/** What a session knows of one of its subscriptions. */
class Entry {
  /** @param {Target} target */
  constructor(target) {
    this.target = target;
  }

  /** The name that the gateway gave it; empty until then. */
  name = "";
  wasGranted = false;
  /** True if it was granted with removals, so the topic had a key. */
  hasRemovals = false;
  isGone = false;
  /** @type {Wish} The wish that was last asked for. */
  asked = {};
  /** @type {Wish | null} The wish that was last granted: a later refusal of it may pass. */
  grantedWish = null;
  /** The interval that was granted, for the way back from a hidden page. */
  interval = "";
  isSlowed = false;
  /** @type {Set<string>} Topics whose snapshot is not complete. */
  awaited = new Set();
  /** @type {Poll | null} Follows it while the stream is held back. */
  poll = null;
  pause = new Pause();

  /** @param {{ options?: string | null }} answer */
  granted({ options }) {
    this.wasGranted = true;
    this.grantedWish = this.asked;
    this.hasRemovals = hasRemovals(options);
    this.interval = intervalOf(options);
  }
}

/** The session of a client, and its stream; opened with the first subscription. */
export class Session {
  /**
   * @param {Transport} transport
   * @param {(state: State, reason: string) => void} onState
   * @param {(name: string, fields: any) => void} onNotice Called with notices of no subscription.
   */
  constructor(transport, onState, onNotice) {
    this.#transport = transport;
    this.#onState = onState;
    this.#onNotice = onNotice;
  }

  #transport;
  #onState;
  #onNotice;
  /** The gateway's id of the session; empty before and between sessions. */
  #id = "";
  #isLive = false; // the stream is there
  #wasOpen = false; // before that a foreign answer is of a wrong address
  /** True if subscriptions are polled, and asked for at the session once its stream gets through. */
  #awaitsHello = false;
  #waiting = new Waiting();
  /** @type {Map<Target, Entry>} */
  #entries = new Map();
  /** @type {Map<string, Entry>} */
  #named = new Map();
  /** @type {Map<string, [StreamEvent, any][]>} Events that came before the answer with the name. */
  #unclaimed = new Map();
  /** The number of requests under way: without any, unknown subscriptions in events have ended. */
  #asking = 0;
  /** @type {Stream | null} */
  #stream = null;
  #pause = new Pause();
  #backoff = new Backoff();
  #isRunning = false;
  #isClosed = false;
  #isHidden = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #hiding;

  /** @param {Target} target */
  add(target) {
    const entry = new Entry(target);
    this.#entries.set(target, entry);
    if (!this.#isRunning) this.#run();
    else if (this.#awaitsHello) this.#poll(entry);
    else if (this.#id) this.#subscribe(entry);
  }

  /** @param {Target} target */
  async remove(target) {
    const entry = this.#entries.get(target);
    if (!entry) return;
    this.#forget(entry);
    if (entry.name && this.#id) await this.#quietly("DELETE", `/subscriptions/${entry.name}`);
  }

  /**
   * @param {Target} target
   * @param {Wish} before
   */
  async change(target, before) {
    const entry = this.#entries.get(target);
    if (entry?.poll) {
      await this.#explain(entry);
      this.#poll(entry);
    }
    if (!entry?.name) return; // it follows as soon as it has a name
    if (changeOf(before, target.wish, wantsRemovals(target.wish)) === null) {
      target.entered("connecting", "");
      await this.#again(entry); // the records follow its snapshot
      return;
    }
    entry.asked = target.wish;
    const path = this.#path(`/subscriptions/${entry.name}`);
    const patch = (/** @type {boolean} */ removals) => this.#transport.ask("PATCH", path, { json: changeOf(before, target.wish, removals) });
    const granted = await withRemovalsOrNot(target, entry.hasRemovals, patch);
    entry.granted(granted);
    entry.isSlowed = false;
    this.#pace(entry);
  }

  /**
   * Set whether the page is hidden: a hidden page needs fewer updates.
   *
   * @param {boolean} isHidden
   */
  setHidden(isHidden) {
    clearTimeout(this.#hiding);
    const apply = () => {
      this.#isHidden = isHidden;
      for (const entry of this.#entries.values()) this.#pace(entry);
    };
    if (isHidden) this.#hiding = setTimeout(apply, HIDDEN_AFTER_MS);
    else apply();
    if (!isHidden) this.wake();
  }

  /** Try again now, where a wait is running. */
  wake() {
    this.#stream?.wake();
    this.#pause.end();
    for (const entry of this.#entries.values()) {
      entry.pause.end();
      entry.poll?.wake();
    }
  }

  /**
   * End all subscriptions and the session.
   *
   * @param {string} [reason]
   */
  async close(reason = "CLOSED") {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#hiding);
    this.#stream?.close();
    this.#pause.end();
    for (const entry of [...this.#entries.values()]) {
      this.#forget(entry);
      entry.target.ended(reason);
    }
    if (this.#id && reason === "CLOSED") await this.#quietly("DELETE", "");
    this.#onState("closed", reason);
  }

  /** End the session without waiting: the page is closed for good. */
  leave() {
    // Otherwise a busy page could still read the gateway's goodbye, and end what other tabs show.
    this.#isClosed = true;
    this.#stream?.close();
    for (const { poll } of this.#entries.values()) poll?.stop();
    if (this.#id) this.#transport.ask("DELETE", this.#path(""), { keepalive: true }).catch(() => {});
  }

  async #run() {
    this.#isRunning = true;
    while (!this.#isClosed) {
      try {
        if (!this.#isPolled) this.#onState("connecting", "");
        await this.#open();
        const reason = await this.#follow();
        await this.close(reason);
      } catch (error) {
        if (this.#isClosed) return;
        const isHeldBack = error instanceof HeldBack;
        if (isHeldBack) this.#giveUp();
        this.#id = "";
        const isGone = error instanceof Problem && error.code === "session-unknown";
        if (!isGone && !isTemporary(error) && !(this.#wasOpen && isForeign(error))) {
          // No retry would help: a wrong token, a wrong address.
          for (const { target } of this.#entries.values()) target.failed(error instanceof Error ? error : new Error(String(error)));
          await this.close(messageOf(error));
          return;
        }
        if (!isHeldBack) this.#lose(error);
        // Also for a session that is gone: a gateway that forgets each of them would be asked without end.
        const askedMs = error instanceof Problem ? error.retryAfterMs : 0;
        await this.#pause.wait(this.#backoff.waitMs(isHeldBack ? STREAM_AGAIN_MS : askedMs));
      }
    }
  }

  /** Open a session, empty: one subscription that is refused must not refuse all. */
  async #open() {
    const { session } = await this.#transport.ask("POST", "/v1/sessions", { json: {}, member: "session" });
    this.#id = session;
    this.#wasOpen = true;
    this.#named.clear();
    this.#unclaimed.clear();
    for (const entry of this.#entries.values()) {
      entry.name = "";
      if (!this.#awaitsHello) this.#subscribe(entry);
    }
  }

  /** End a session whose stream is held back: its subscriptions are polled, and begin in the next one. */
  #giveUp() {
    this.#quietly("DELETE", "");
    this.#awaitsHello = true;
    for (const entry of this.#entries.values()) {
      entry.name = "";
      if (!entry.poll) this.#poll(entry); // it was not granted yet
    }
  }

  #follow() {
    this.#stream = new Stream({
      open: (lastId, signal) => this.#transport.open(this.#path("/events"), lastId, signal),
      event: (event, fields) => this.#take(event, fields),
      lost: (error) => this.#lose(error),
      silent: () => this.#transport.turn(),
      isReplaced: () => this.#isPolled,
      parsed: (text) => this.#transport.parsedEvent(text),
    });
    return this.#stream.run();
  }

  /**
   * @param {StreamEvent} event
   * @param {any} fields
   */
  #take(event, fields) {
    if (event.name === "hello") {
      this.#backoff.succeeded();
      this.#isLive = true;
      this.#onState("live", "");
      this.#endPolls();
      for (const each of fields.subscriptions) this.#deliver({ ...event, name: "subscribed" }, each);
      for (const entry of this.#entries.values()) this.#settle(entry);
    } else if (fields.sub === undefined) {
      this.#onNotice(event.name, fields);
    } else {
      this.#deliver(event, fields);
    }
  }

  /**
   * @param {StreamEvent} event
   * @param {any} fields
   */
  #deliver(event, fields) {
    const entry = this.#named.get(fields.sub);
    if (entry) {
      this.#apply(entry, event, fields);
    } else if (this.#asking > 0) {
      // The event arrived before the answer that names its subscription.
      const waiting = this.#unclaimed.get(fields.sub) ?? [];
      this.#unclaimed.set(fields.sub, [...waiting, [event, fields]]);
    }
  }

  /**
   * @param {Entry} entry
   * @param {StreamEvent} event
   * @param {any} fields
   */
  #apply(entry, event, fields) {
    try {
      entry.target.take(event.name, fields, event.id);
    } catch (error) {
      if (!(error instanceof RecordMissing)) throw error;
      loseOne(entry, error);
      this.#again(entry);
      return;
    }
    if (event.name === "unsubscribed") this.#unsubscribed(entry, fields);
    const isComplete = event.name === "group_end" || event.name === "unsubscribed";
    if (isComplete && entry.awaited.delete(fields.topic)) this.#settle(entry);
  }

  /** @param {unknown} error Why the stream is not there. */
  #lose(error) {
    this.#isLive = false;
    if (!this.#isPolled) this.#onState("lost", messageOf(error));
    for (const entry of this.#entries.values()) {
      if (entry.poll) continue; // it reports its own state
      loseOne(entry, error);
      if (error instanceof HeldBack && entry.name) this.#poll(entry);
    }
  }

  /** True if polling replaces the stream. */
  get #isPolled() {
    return [...this.#entries.values()].some(({ poll }) => poll?.isThrough);
  }

  /**
   * Follow a subscription without the stream, from a snapshot on.
   *
   * @param {Entry} entry
   */
  #poll(entry) {
    entry.poll?.stop();
    const { target } = entry;
    const poll = new Poll(this.#transport, target, this.#waiting, {
      query: async () => {
        if (!entry.wasGranted) await this.#explain(entry);
        return polledBy(target, entry.interval, this.#slower(entry));
      },
      through: () => {
        const reason = "polled, as no event of the stream gets through";
        this.#onState("polling", reason);
        target.entered("polling", reason);
      },
      failed: (error) => this.#losePoll(entry, error),
    });
    entry.poll = poll;
    poll.run();
  }

  /**
   * Ask what a subscription would be granted, as there is no session that would grant it.
   *
   * @param {Entry} entry
   * @throws {Problem} Refused.
   */
  async #explain(entry) {
    if (isPattern(entry.target.topic)) return; // only a subscription can have several topics
    entry.asked = entry.target.wish;
    const before = { wasGranted: false, hasRemovals: entry.hasRemovals }; // nothing is begun
    const granted = await askFor(entry.target, before, (json) => this.#transport.ask("POST", "/v1/explain", { json }));
    if (entry.isGone) return;
    entry.granted(granted);
    entry.target.accepted(granted);
  }

  /**
   * @param {Entry} entry
   * @param {Error} error
   */
  #losePoll(entry, error) {
    const code = error instanceof Problem ? error.code : ""; // empty: something else has answered
    const isRefused = code !== "" && !isTemporary(error);
    if (!entry.wasGranted && isRefused) {
      this.#forget(entry);
      entry.target.failed(error);
      return;
    }
    // Options that were granted and are refused now fit only a stream.
    const isInvalid = code === "options-invalid";
    const isStreamed = error instanceof NotPolled || isInvalid;
    loseOne(entry, isInvalid ? new NotPolled(error.message) : error);
    if (isStreamed || this.#isPolled) return;
    this.#onState("lost", messageOf(error));
    this.#pause.end(); // polling fails, too: try to open the stream now
  }

  /** The stream is there: what was polled begins in it with a snapshot. */
  #endPolls() {
    for (const entry of this.#entries.values()) {
      const { poll } = entry;
      poll?.stop();
      entry.poll = null;
      if (this.#awaitsHello) this.#subscribe(entry);
      else if (poll && entry.name) this.#again(entry);
    }
    this.#awaitsHello = false;
  }

  /**
   * Say that a subscription is live, if it is.
   *
   * @param {Entry} entry
   */
  #settle(entry) {
    if (this.#isLive && entry.name && entry.awaited.size === 0) entry.target.entered("live", "");
  }

  /**
   * @param {Entry} entry
   * @param {{ topic: string, reason: string }} fields
   */
  #unsubscribed(entry, { topic, reason }) {
    if (topic !== entry.target.topic) {
      // Of a pattern only this topic has left, and the pattern takes it again only if it begins again.
      if (reason === BACK_PRESSURE) this.#again(entry, true);
      if (reason === BOOKMARK_EXPIRED) this.#expire(entry, topic);
      return;
    }
    if (COMES_AGAIN.has(reason)) {
      this.#named.delete(entry.name);
      entry.name = "";
      entry.target.entered("lost", `the gateway has ended the subscription to ${topic}: ${reason}`);
      this.#subscribe(entry, true);
    } else if (reason === BOOKMARK_EXPIRED) {
      this.#expire(entry, topic);
    } else {
      this.#forget(entry);
      entry.target.ended(reason);
    }
  }

  /**
   * End a subscription that must find its messages, and does not: as if it were refused.
   *
   * @param {Entry} entry
   * @param {string} topic
   */
  #expire(entry, topic) {
    this.remove(entry.target);
    const document = { code: "bookmark-expired", title: "The journal does not go on from there", detail: "the next messages are no longer kept" };
    entry.target.failed(new Problem(410, document, 0, `topic ${topic}`));
  }

  /**
   * Ask for a subscription until it is granted or refused for good.
   *
   * @param {Entry} entry
   * @param {boolean} [isLater] Wait first: there was a reason for which it ended.
   */
  async #subscribe(entry, isLater = false) {
    const session = this.#id;
    const backoff = new Backoff();
    let waitMs = backoff.waitMs();
    if (isLater) await entry.pause.wait(waitMs);
    while (!this.#isClosed && !entry.isGone && session === this.#id) {
      this.#asking += 1;
      try {
        entry.asked = entry.target.wish;
        const place = this.#path("/subscriptions");
        const post = (/** @type {any} */ json) => this.#transport.ask("POST", place, { json, member: "sub" });
        const granted = await askFor(entry.target, entry, post);
        if (session === this.#id) this.#name(entry, granted);
        return;
      } catch (error) {
        if (!(error instanceof Error)) throw error;
        if (error instanceof Problem && error.code === "session-unknown") return; // the stream finds out, too
        if (!isTemporary(error) && !isForeign(error) && !(entry.asked === entry.grantedWish && isOfTopic(error))) {
          this.#forget(entry);
          entry.target.failed(error);
          return;
        }
        if (session === this.#id) loseOne(entry, error);
        waitMs = backoff.waitMs(error instanceof Problem ? error.retryAfterMs : 0);
      } finally {
        this.#asking -= 1;
      }
      await entry.pause.wait(waitMs);
    }
  }

  /**
   * @param {Entry} entry
   * @param {any} granted
   */
  #name(entry, granted) {
    if (entry.isGone) {
      this.#quietly("DELETE", `/subscriptions/${granted.sub}`);
      return;
    }
    entry.name = granted.sub;
    entry.granted(granted);
    entry.isSlowed = false;
    entry.awaited = awaitedOf(granted);
    this.#named.set(entry.name, entry);
    entry.target.accepted(granted);
    const waiting = this.#unclaimed.get(entry.name) ?? [];
    this.#unclaimed.delete(entry.name);
    if (this.#asking === 1) this.#unclaimed.clear(); // nothing else is asked for
    for (const [event, fields] of waiting) this.#apply(entry, event, fields);
    this.#settle(entry);
    this.#pace(entry);
    // It was changed while its answer was on the way.
    if (entry.asked !== entry.target.wish) this.change(entry.target, entry.asked).catch((error) => entry.target.failed(error));
  }

  /**
   * Begin a subscription again, from the beginning.
   *
   * @param {Entry} entry
   * @param {boolean} [isLater]
   */
  async #again(entry, isLater = false) {
    const name = entry.name;
    this.#named.delete(name);
    entry.name = "";
    this.#subscribe(entry, isLater);
    await this.#quietly("DELETE", `/subscriptions/${name}`);
  }

  /** @param {Entry} entry */
  #forget(entry) {
    entry.isGone = true;
    entry.poll?.stop();
    entry.pause.end();
    this.#entries.delete(entry.target);
    this.#named.delete(entry.name);
  }

  /**
   * Ask for the interval that fits a page that is seen, or is not.
   *
   * @param {Entry} entry
   */
  #pace(entry) {
    const slower = this.#slower(entry);
    if (!entry.name || (slower !== null) === entry.isSlowed) return;
    entry.isSlowed = slower !== null;
    const conflation = slower ?? entry.interval;
    this.#quietly("PATCH", `/subscriptions/${entry.name}`, { conflation });
  }

  /**
   * Return the interval of a page that is hidden now, in place of the granted one; null to leave it.
   *
   * @param {Entry} entry
   */
  #slower(entry) {
    return this.#isHidden ? slowerOf(entry.interval, entry.target.wish.hidden) : null;
  }

  /**
   * Make a request about this session that nothing depends on.
   *
   * @param {string} method
   * @param {string} path
   * @param {any} [json]
   */
  async #quietly(method, path, json) {
    try {
      await this.#transport.ask(method, this.#path(path), { json });
    } catch {
      // The session is gone, or the gateway is: what is asked for ends with it.
    }
  }

  /** @param {string} rest */
  #path(rest) {
    return `/v1/sessions/${this.#id}${rest}`;
  }
}

/**
 * Return the topics that begin with a snapshot. A topic that begins after a bookmark has none, nor has a replay.
 *
 * @param {any} granted The answer to a subscription's request; of a pattern it lists its topics.
 * @returns {Set<string>}
 */
function awaitedOf(granted) {
  const entries = (granted.topics ?? [granted]).filter((/** @type {any} */ each) => !each.bookmark && !REPLAY.test(each.options ?? ""));
  return new Set(entries.map((/** @type {any} */ each) => each.topic));
}

/**
 * @param {Entry} entry
 * @param {unknown} error
 */
function loseOne({ target }, error) {
  target.entered("lost", messageOf(error), error instanceof Problem ? error.code : "");
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
