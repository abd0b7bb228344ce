/**
 * One stream for all tabs of an origin.
 *
 * A browser opens six connections to a gateway without HTTP/2, over all tabs, and the seventh stream
 * waits silently. So one tab leads: it has the session, and forwards its events to the others over
 * a BroadcastChannel. Equal subscriptions of several tabs are one at the gateway.
 *
 * The leader is who holds a Web Lock. When its tab is closed the browser gives the lock to the next
 * tab, which opens a session of its own; the records of all tabs follow the new snapshots. Each tab
 * holds a second lock of its own, by which the leader learns that a tab is gone: no tab can be relied
 * upon to say so.
 *
 * @module
 */

import { Problem } from "./errors.js";
import { stringify } from "./json.js";
import { Leader } from "./leader.js";
import { RecordMissing } from "./replica.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./subscription.js").State} State */
/** @typedef {import("./subscription.js").Target} Target */
/** @typedef {import("./subscription.js").Wish} Wish */

/** @typedef {import("./leader.js").Message} Message */
/** @typedef {(state: State, reason: string) => void} OnState */
/** @typedef {(name: string, fields: any) => void} OnNotice */
/** @typedef {(onState: OnState, onNotice: OnNotice) => Session} OpenSession */

/** Return true where tabs can share a stream: a browser, over TLS or on this machine. */
export function canShare() {
  return typeof document !== "undefined" && typeof BroadcastChannel !== "undefined" && navigator.locks !== undefined;
}

/** What a tab knows of one of its own subscriptions. */
class Wanted {
  /**
   * @param {number} number
   * @param {Target} target
   */
  constructor(number, target) {
    this.number = number;
    this.target = target;
    this.spec = specOf(target);
  }

  /** True until the leader has said where it begins; events before that are of others. */
  isWaiting = true;
  /** @type {((error?: Error) => void) | null} Ends a change that waits for its answer. */
  settle = null;
}

/** The connection of one tab: to its own session where it leads, else to the leading tab. */
export class Tabs {
  /**
   * @param {string} name Equal for the tabs that share.
   * @param {OpenSession} open Opens a session, if this tab becomes the leader.
   * @param {OnState} onState
   * @param {OnNotice} onNotice
   */
  constructor(name, open, onState, onNotice) {
    this.#name = name;
    this.#onState = onState;
    this.#onNotice = onNotice;
    this.#channel = new BroadcastChannel(name);
    this.#channel.addEventListener("message", ({ data }) => this.#receive(data));
    this.#tab = stringify([Date.now(), Math.random()]);
    this.#start(open);
  }

  #name;
  #onState;
  #onNotice;
  #channel;
  #tab;
  /** @type {Leader | null} */
  #leader = null;
  /** @type {Map<number, Wanted>} */
  #wanted = new Map();
  #next = 0;
  #isHidden = false;
  /** True once this tab may send: it holds its own lock, so the leader will notice its end. */
  #isPresent = false;
  #leaving = new AbortController();
  #leave = () => {};

  /** @param {Target} target */
  add(target) {
    const wanted = new Wanted((this.#next += 1), target);
    this.#wanted.set(wanted.number, wanted);
    this.#want(wanted);
  }

  /** @param {Target} target */
  async remove(target) {
    const wanted = this.#of(target);
    if (!wanted) return;
    this.#wanted.delete(wanted.number);
    settle(wanted);
    this.#send({ type: "leave", number: wanted.number });
  }

  /**
   * @param {Target} target
   * @param {Wish} before
   */
  async change(target, before) {
    const wanted = this.#of(target);
    if (!wanted) return;
    // Other tabs may have the same subscription, which must not change for them: this is another one.
    const error = await new Promise((/** @type {(error?: Error) => void} */ resolve) => {
      wanted.settle = resolve;
      this.#want(wanted);
    });
    if (!error) return;
    this.#want(wanted, before);
    throw error;
  }

  /** @param {boolean} isHidden */
  setHidden(isHidden) {
    this.#isHidden = isHidden;
    this.#send({ type: "seen", isHidden });
  }

  /** Try again now, where a wait is running. */
  wake() {
    this.#send({ type: "wake" });
  }

  /** End what ends with this page. */
  leave() {
    this.#leader?.leave();
  }

  /** End the subscriptions of this tab. */
  async close() {
    for (const { target } of this.#wanted.values()) target.ended("CLOSED");
    this.#send({ type: "gone" });
    this.#wanted.forEach((wanted) => settle(wanted));
    this.#wanted.clear();
    this.#leaving.abort();
    this.#leave();
    await this.#leader?.close();
    this.#channel.close();
    this.#onState("closed", "CLOSED");
  }

  /** @param {OpenSession} open */
  #start(open) {
    const left = new Promise((/** @type {(value?: any) => void} */ resolve) => {
      this.#leave = () => resolve();
    });
    const { signal } = this.#leaving;
    const hold = (/** @type {string} */ lock, /** @type {() => void} */ held) => {
      navigator.locks.request(lock, { signal }, () => (held(), left)).catch(() => {}); // left before it was granted
    };
    hold(`${this.#name} ${this.#tab}`, () => {
      this.#isPresent = true;
      this.#send({ type: "join" });
      hold(this.#name, () => {
        this.#leader = new Leader(this.#name, this.#tab, open, (message, isForOthers) => this.#answer(message, isForOthers));
        this.#leader.begin();
      });
    });
  }

  /**
   * @param {Wanted} wanted
   * @param {Wish} [wish]
   */
  #want(wanted, wish = wanted.target.wish) {
    const { number, target } = wanted;
    wanted.spec = specOf({ topic: target.topic, wish });
    wanted.isWaiting = true;
    const spec = { topic: target.topic, wish, place: target.place };
    this.#send({ type: "want", number, name: wanted.spec, spec });
  }

  /** @param {Target} target */
  #of(target) {
    return [...this.#wanted.values()].find((wanted) => wanted.target === target);
  }

  /**
   * Send a message to the leader, whichever tab that is.
   *
   * @param {Message} message
   */
  #send(message) {
    if (!this.#isPresent) return; // the first leader is sent everything
    const signed = { ...message, tab: this.#tab };
    // Later: records that the leader holds already must not arrive before the caller can listen.
    if (this.#leader) queueMicrotask(() => this.#leader?.receive(signed));
    else this.#channel.postMessage(signed);
  }

  /**
   * @param {Message} message Of this tab as the leader.
   * @param {boolean} isForOthers False if no other tab needs it: a copy of each batch is not free.
   */
  #answer(message, isForOthers) {
    if (isForOthers) this.#channel.postMessage(message);
    this.#receive(message);
  }

  /** @param {Message} message */
  #receive(message) {
    if (message.tab !== undefined && message.leader === undefined) {
      this.#leader?.receive(message);
    } else if (message.type === "leads") {
      if (message.to !== undefined && message.to !== this.#tab) return;
      this.#introduce();
      this.#onState(message.state, message.reason);
    } else if (message.type === "state") {
      this.#onState(message.state, message.reason);
    } else if (message.type === "notice") {
      this.#onNotice(message.name, message.fields);
    } else {
      this.#deliver(message);
    }
  }

  /** Send a new leader all that it has to know about this tab. */
  #introduce() {
    this.#send({ type: "seen", isHidden: this.#isHidden });
    for (const wanted of this.#wanted.values()) this.#want(wanted);
  }

  /** @param {Message} message */
  #deliver(message) {
    for (const wanted of [...this.#wanted.values()]) {
      const { target } = wanted;
      const isItsBeginning = message.tab === this.#tab && message.number === wanted.number && message.name === wanted.spec;
      if (message.type === "begin" && isItsBeginning) {
        wanted.isWaiting = false;
        if (message.granted) this.#granted(wanted, message.granted);
        for (const { name, fields } of message.events) target.take(name, fields, "");
        target.place = message.place;
        target.entered(message.state, message.reason, message.code);
      } else if (message.name !== wanted.spec || wanted.isWaiting) {
        continue;
      } else if (message.type === "granted") {
        this.#granted(wanted, message.granted);
      } else if (message.type === "entered") {
        target.entered(message.state, message.reason, message.code);
      } else if (message.type === "event") {
        this.#take(target, message);
      } else if (message.type === "failed" || message.type === "ended") {
        this.#finish(wanted, message);
      }
    }
  }

  /**
   * @param {Target} target
   * @param {Message} message
   */
  #take(target, { event, fields, id }) {
    try {
      target.take(event, fields, id);
    } catch (error) {
      // The leader misses the record as well, and begins again for all.
      if (!(error instanceof RecordMissing)) throw error;
    }
  }

  /**
   * @param {Wanted} wanted
   * @param {any} granted
   */
  #granted(wanted, granted) {
    wanted.target.accepted(granted);
    settle(wanted);
  }

  /**
   * @param {Wanted} wanted
   * @param {Message} message
   */
  #finish(wanted, message) {
    const error = message.status === undefined ? new Error(message.reason) : new Problem(message.status, message.document, 0, message.about);
    if (wanted.settle) {
      // A change was refused: the subscription goes on as it was.
      settle(wanted, error);
      return;
    }
    this.#wanted.delete(wanted.number);
    if (message.type === "failed") wanted.target.failed(error);
    else wanted.target.ended(message.reason);
  }
}

/**
 * End a change that waits for its answer. One of a subscription that has ended has nothing to report.
 *
 * @param {Wanted} wanted
 * @param {Error} [error]
 */
function settle(wanted, error) {
  wanted.settle?.(error);
  wanted.settle = null;
}

/** @param {{ topic: string, wish: Wish }} target */
function specOf({ topic, wish }) {
  const given = Object.entries(wish).filter(([, value]) => value !== undefined);
  return stringify([topic, given.sort(([one], [other]) => (one < other ? -1 : 1))]);
}
