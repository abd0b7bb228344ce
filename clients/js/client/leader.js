/**
 * The leading tab: it owns the session, and forwards events to the tabs that want them.
 *
 * @module
 */

import { Problem } from "./errors.js";
import { Replica } from "./replica.js";
import { placeAfter, placeOf } from "./subscription.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./subscription.js").State} State */
/** @typedef {import("./subscription.js").Target} Target */
/** @typedef {import("./subscription.js").Wish} Wish */

/** @typedef {{ topic: string, wish: Wish, place: string | null }} Spec */
/** @typedef {Record<string, any> & { type: string }} Message */
/** @typedef {(onState: (state: State, reason: string) => void, onNotice: (name: string, fields: any) => void) => Session} OpenSession */

/** The session of the leading tab, and what each tab wants of it. */
export class Leader {
  /**
   * @param {string} name
   * @param {string} tab
   * @param {OpenSession} open
   * @param {(message: Message, isForOthers: boolean) => void} answer
   */
  constructor(name, tab, open, answer) {
    this.#name = name;
    this.#tab = tab;
    this.#answer = answer;
    this.#session = open(
      (state, reason) => this.#enter(state, reason),
      (notice, fields) => this.say({ type: "notice", name: notice, fields }),
    );
  }

  #name;
  #tab;
  #answer;
  #session;
  /** @type {State} */
  #state = "connecting";
  #reason = "";
  /** @type {Map<string, Shared>} */
  #shared = new Map();
  /** @type {Map<string, boolean>} Of each tab: whether it is hidden. */
  #tabs = new Map();

  /**
   * Tell the tabs that this one leads.
   *
   * @param {string} [to] The tab that has asked; by default all, as some may not be known here.
   */
  begin(to) {
    this.#answer({ type: "leads", leader: this.#tab, to, state: this.#state, reason: this.#reason }, true);
  }

  leave() {
    this.#session.leave();
  }

  close() {
    return this.#session.close();
  }

  /** @param {Message} message */
  say(message) {
    this.#answer({ ...message, leader: this.#tab }, this.#tabs.size > 1);
  }

  /** @param {Message} message Of a tab, this one included. */
  receive(message) {
    const { type, tab, number } = message;
    if (type === "gone") {
      this.#drop(tab);
      return;
    }
    this.#meet(tab);
    if (type === "join") this.begin(tab);
    else if (type === "want") this.#want(tab, number, message.name, message.spec);
    else if (type === "leave") this.#leave(`${tab} ${number}`);
    else if (type === "wake") this.#session.wake();
    else if (type === "seen") {
      this.#tabs.set(tab, message.isHidden);
      this.#session.setHidden([...this.#tabs.values()].every(Boolean));
    }
  }

  /** @param {string} tab */
  #meet(tab) {
    if (this.#tabs.has(tab)) return;
    this.#tabs.set(tab, false);
    if (tab === this.#tab) return;
    // The tab holds it as long as it lives.
    navigator.locks.request(`${this.#name} ${tab}`, () => this.#drop(tab)).catch(() => {});
  }

  /** @param {string} tab */
  #drop(tab) {
    if (!this.#tabs.delete(tab)) return;
    for (const shared of this.#shared.values()) {
      for (const reader of [...shared.readers]) if (reader.startsWith(`${tab} `)) this.#leave(reader);
    }
    if (this.#tabs.size > 0) this.#session.setHidden([...this.#tabs.values()].every(Boolean));
  }

  /**
   * @param {string} tab
   * @param {number} number
   * @param {string} name
   * @param {Spec} spec
   */
  #want(tab, number, name, spec) {
    const reader = `${tab} ${number}`;
    let shared = this.#shared.get(name);
    const isNew = shared === undefined;
    if (!shared) {
      shared = new Shared(name, spec, this, () => this.#shared.delete(name));
      this.#shared.set(name, shared);
    }
    shared.readers.add(reader);
    this.#leave(reader, shared);
    // Deltas of a subscription without a snapshot build on records that only its first tab was sent.
    const events = [...shared.replica.snapshot(shared.wish.command === "delta_subscribe")];
    this.say({ type: "begin", tab, number, name, granted: shared.granted, place: shared.place, events, ...shared.state });
    // Now, so that no event comes before the beginning.
    if (isNew) this.#session.add(shared);
  }

  /**
   * End what a reader had.
   *
   * @param {string} reader
   * @param {Shared | null} [but] What it has now.
   */
  #leave(reader, but = null) {
    for (const [name, shared] of this.#shared) {
      if (shared === but || !shared.readers.delete(reader) || shared.readers.size > 0) continue;
      this.#shared.delete(name);
      this.#session.remove(shared);
    }
  }

  /**
   * @param {State} state
   * @param {string} reason
   */
  #enter(state, reason) {
    this.#state = state;
    this.#reason = reason;
    this.say({ type: "state", state, reason });
  }
}

/**
 * A subscription at the gateway that one or more tabs read.
 *
 * @implements {Target}
 */
class Shared {
  /**
   * @param {string} name
   * @param {Spec} spec
   * @param {Leader} leader
   * @param {() => void} over
   */
  constructor(name, { topic, wish, place }, leader, over) {
    this.name = name;
    this.topic = topic;
    this.wish = wish;
    /** @type {string | null} */
    this.place = place;
    this.replica = new Replica(/[*>]/.test(topic));
    this.#leader = leader;
    this.#over = over;
  }

  #leader;
  #over;
  /** @type {Set<string>} */
  readers = new Set();
  /** @type {any} What was granted. */
  #answer = null;
  /** @type {Map<string, any>} Of a pattern: the topics that it has by now. */
  #topics = new Map();
  /** @type {{ state: State, reason: string, code: string }} */
  state = { state: "connecting", reason: "", code: "" };

  /** What was granted, as for a tab that comes now. */
  get granted() {
    return this.#answer?.topics ? { ...this.#answer, topics: [...this.#topics.values()] } : this.#answer;
  }

  /** @param {any} granted */
  accepted(granted) {
    this.#answer = granted;
    this.#topics = new Map((granted.topics ?? []).map((/** @type {any} */ each) => [each.topic, each]));
    this.replica.begin(granted.topics);
    this.place = placeOf(this.place, granted);
    this.#say({ type: "granted", granted });
  }

  /**
   * @param {State} state
   * @param {string} reason
   * @param {string} [code]
   */
  entered(state, reason, code = "") {
    this.state = { state, reason, code };
    this.#say({ type: "entered", ...this.state });
  }

  /**
   * @param {string} event
   * @param {any} fields
   * @param {string} id
   */
  take(event, fields, id) {
    if (event === "subscribed") this.#topics.set(fields.topic, fields);
    if (event === "unsubscribed") this.#topics.delete(fields.topic);
    const { missing } = this.replica.take(event, fields);
    this.place = placeAfter(this.place, event, fields, id);
    this.#say({ type: "event", event, fields, id });
    if (missing) throw missing;
  }

  /** @param {Error} error */
  failed(error) {
    const problem = error instanceof Problem ? { status: error.status, document: error.document, about: error.about } : {};
    this.#over();
    this.#say({ type: "failed", reason: error.message, ...problem });
  }

  /** @param {string} reason */
  ended(reason) {
    this.#over();
    this.#say({ type: "ended", reason });
  }

  /** @param {Message} message */
  #say(message) {
    this.#leader.say({ ...message, name: this.name });
  }
}
