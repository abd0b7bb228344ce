/**
 * The records of one subscription as a live map, and the changes that each flush makes to it.
 *
 * @module
 */

import { equal, patched, rowsOf, stringify } from "./json.js";

/**
 * A record as it is now, or a removed one as it last was.
 *
 * @template [V=any] The type of its value.
 * @typedef {object} Row
 * @property {string} id The key as text, `["IBM",7]`; for a pattern the topic stands before it.
 * @property {string} topic
 * @property {any[] | null} key The fields of the key; null on a topic without key.
 * @property {V} value
 * @property {string} op `snapshot`, `publish`, `delta` or `oof`.
 * @property {string} bookmark Of the first message that the row stands for; empty if it was polled.
 * @property {V} [previous] The value before; not on a new record.
 * @property {string} [reason] Of a removal: `deleted`, `expired`, `match`, `missed` for a record that
 *   was removed while the stream was lost or kept back, `unsubscribed` for one of a topic that may not
 *   be read any more, or `unreadable` for one whose newest value cannot be read.
 * @property {number} [timestamp] In ms, with the option `timestamp`.
 * @property {number} [conflated] How many messages the row stands for, with the option `receipt`.
 * @property {string} [first] The bookmark of the first of them.
 * @property {string} [last] The bookmark of the last of them.
 */

/**
 * The net effect of one or more flushes: each record is in one of the three lists.
 *
 * @template [V=any] The type of the records' values.
 */
export class Changes {
  /** @type {Map<string, Row<V>>} */
  #added = new Map();
  /** @type {Map<string, Row<V>>} */
  #changed = new Map();
  /** @type {Map<string, Row<V>>} */
  #removed = new Map();

  /** Records that were not held before. */
  get added() {
    return [...this.#added.values()];
  }

  /** Records with a new value; `previous` is the one before. */
  get changed() {
    return [...this.#changed.values()];
  }

  /** Records that are no longer there; `reason` says why. */
  get removed() {
    return [...this.#removed.values()];
  }

  /** The number of records in the three lists. */
  get size() {
    return this.#added.size + this.#changed.size + this.#removed.size;
  }

  /**
   * Record a value; `isNew` if nothing was held before it.
   *
   * @internal
   * @param {Row<V>} row
   * @param {boolean} isNew
   */
  put(row, isNew) {
    const removed = this.#removed.get(row.id);
    const before = this.#changed.get(row.id) ?? removed;
    if (removed) this.#removed.delete(row.id);
    if (before) this.#changed.set(row.id, { ...row, previous: before.previous });
    else if (isNew || this.#added.has(row.id)) this.#added.set(row.id, withoutPrevious(row));
    else this.#changed.set(row.id, row);
  }

  /**
   * Record a removal.
   *
   * @internal
   * @param {Row<V>} row
   */
  remove(row) {
    if (this.#added.delete(row.id)) return; // came and went: nothing for a reader to do
    const before = this.#changed.get(row.id);
    this.#changed.delete(row.id);
    this.#removed.set(row.id, before ? { ...row, previous: before.previous } : row);
  }

  /**
   * Add later changes, so that a reader that is behind gets both as one.
   *
   * @internal
   * @param {Changes<V>} later
   */
  join(later) {
    for (const row of later.removed) this.remove(row);
    for (const row of later.added) this.put(row, true);
    for (const row of later.changed) this.put(row, false);
  }
}

/**
 * @template V
 * @param {Row<V>} row
 * @returns {Row<V>}
 */
function withoutPrevious({ previous, ...row }) {
  return row;
}

/** A delta came for a record that is not held: the subscription has to begin again. */
export class RecordMissing extends Error {}

/**
 * The newest value of each key, from the events of a subscription in format `batch` or `envelope`.
 *
 * A record whose value cannot be read, such as `1e400` from a store of an earlier version, is not held
 * until it has another one: an older value would pass for the newest. One whose key has such a number is
 * never held.
 */
export class Replica {
  /** @param {boolean} [hasManyTopics] True for a pattern: two topics may have the same key. */
  constructor(hasManyTopics = false) {
    this.#hasManyTopics = hasManyTopics;
  }

  #hasManyTopics;
  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** @type {Map<string, Set<string>>} Of a pattern: the ids of each topic, to find them without a search of all. */
  #index = new Map();
  /** @type {Set<string>} Topics that have begun with a snapshot. */
  #topics = new Set();
  /** @type {Map<string, Set<string>>} Of each topic in a snapshot: the records that it has not shown yet. */
  #unseen = new Map();
  /** @type {Set<string>} */
  #unreadable = new Set();

  /** @returns {ReadonlyMap<string, Row>} The records by id, in the order of their arrival. */
  get rows() {
    return this.#rows;
  }

  /**
   * Expect the first events of a subscription: a snapshot that was cut off is not continued.
   *
   * @param {{ topic: string }[]} [topics] Those that a pattern has: of others nothing will be said any more.
   */
  begin(topics) {
    const changes = new Changes();
    this.#unseen.clear();
    if (topics === undefined) return changes;
    const listed = new Set(topics.map(({ topic }) => topic));
    for (const topic of [...this.#index.keys()].filter((each) => !listed.has(each))) {
      for (const id of this.#idsOf(topic)) this.#drop(id, "missed", changes);
      this.#topics.delete(topic);
    }
    return changes;
  }

  /** True while a topic is in the middle of a snapshot. */
  get isInSnapshot() {
    return this.#unseen.size > 0;
  }

  /**
   * Return the id of a record.
   *
   * @param {any} key
   * @param {string} topic
   */
  idOf(key, topic) {
    const text = stringify(key ?? null);
    return this.#hasManyTopics ? `${topic} ${text}` : text;
  }

  /**
   * Apply one event; return its rows and what they changed.
   *
   * `missing` is the error of a delta without its record; the other rows are applied all the same.
   * `unreadable` has the rows of records whose values cannot be read from now on.
   *
   * @param {string} name
   * @param {Record<string, any>} fields
   * @returns {{ rows: Row[], changes: Changes, missing: RecordMissing | null, unreadable: any[] }}
   */
  take(name, fields) {
    const changes = new Changes();
    /** @type {Row[]} */
    const rows = [];
    /** @type {any[]} */
    const unreadable = [];
    let missing = null;
    if (name === "message") {
      for (const given of rowsOf(fields)) {
        const id = this.idOf(given.key, given.topic);
        if (given.unreadable) {
          if (this.#lose(id, changes)) unreadable.push(given);
          continue;
        }
        // A delta of a record that could not be read finds none: the subscription begins again.
        this.#unreadable.delete(id);
        const row = this.#apply(id, given, changes);
        if (row) rows.push(row);
        else missing = new RecordMissing(`a delta came for a record of ${given.topic} that is not held`);
      }
    } else if (name === "group_begin") {
      this.#topics.add(fields.topic);
      this.#unseen.set(fields.topic, new Set(this.#idsOf(fields.topic)));
    } else if (name === "group_end") {
      // A snapshot has all records: one that it leaves out is gone, without a removal.
      for (const id of this.#unseen.get(fields.topic) ?? []) this.#drop(id, "missed", changes);
      this.#unseen.delete(fields.topic);
    } else if (name === "unsubscribed") {
      this.#unseen.delete(fields.topic);
      const isRemoved = fields.reason === "REMOVED";
      // A pattern goes on with its other topics: nobody would see that these records are old for good.
      if (!isRemoved && !(this.#hasManyTopics && fields.reason === "AUTHORIZATION")) return { rows, changes, missing, unreadable };
      for (const id of this.#idsOf(fields.topic)) this.#drop(id, isRemoved ? "deleted" : "unsubscribed", changes);
      this.#topics.delete(fields.topic);
    }
    return { rows, changes, missing, unreadable };
  }

  /**
   * Yield the events that bring another replica to this state.
   *
   * A topic that is in the middle of a snapshot stays open: its end is still to come.
   *
   * @param {boolean} [withOthers] Also the records of topics without a snapshot: the next deltas build on them.
   */
  *snapshot(withOthers = false) {
    for (const topic of this.#topics) {
      const rows = this.#idsOf(topic).filter((id) => !this.#unseen.get(topic)?.has(id));
      const held = rows.map((id) => ({ ...withoutPrevious(/** @type {Row} */ (this.#rows.get(id))), op: "snapshot" }));
      yield { name: "group_begin", fields: { topic, rows: held.length } };
      yield { name: "message", fields: { topic, rows: held } };
      if (!this.#unseen.has(topic)) yield { name: "group_end", fields: { topic, rows: held.length } };
    }
    const others = withOthers ? [...this.#rows.values()].filter(({ topic }) => !this.#topics.has(topic)) : [];
    if (others.length > 0) yield { name: "message", fields: { rows: others.map((row) => ({ ...withoutPrevious(row), op: "snapshot" })) } };
  }

  /**
   * Give up a record whose value cannot be read; return true if it could be before.
   *
   * @param {string} id
   * @param {Changes} changes
   */
  #lose(id, changes) {
    this.#drop(id, "unreadable", changes);
    const isNew = !this.#unreadable.has(id);
    this.#unreadable.add(id);
    return isNew;
  }

  /**
   * @param {string} id
   * @param {Record<string, any>} given
   * @param {Changes} changes
   * @returns {Row | null} Null for a delta without its record.
   */
  #apply(id, given, changes) {
    const held = this.#rows.get(id);
    const row = /** @type {Row} */ ({ ...given, id, key: given.key ?? null });
    if (held) row.previous = held.value;
    if (row.op === "oof") {
      row.value ??= held?.value; // polling gives only the key
      this.#delete(id, row.topic);
      if (held) changes.remove(row);
      return row;
    }
    if (row.op === "delta") {
      // A guess would be wrong for good: deltas after it build on it.
      if (!held) return null;
      row.value = patched(held.value, row.value);
    }
    const wasUnseen = this.#unseen.get(row.topic)?.delete(id) ?? false;
    this.#rows.set(id, row);
    if (this.#hasManyTopics && !held) this.#indexOf(row.topic).add(id);
    // A snapshot after a lost stream repeats what is held; that is no change.
    if (!(held && wasUnseen && equal(held.value, row.value))) changes.put(row, !held);
    return row;
  }

  /**
   * @param {string} id
   * @param {string} reason
   * @param {Changes} changes
   */
  #drop(id, reason, changes) {
    const held = this.#rows.get(id);
    if (!held) return;
    this.#delete(id, held.topic);
    changes.remove({ ...held, op: "oof", reason, previous: held.value });
  }

  /**
   * @param {string} id
   * @param {string} topic
   */
  #delete(id, topic) {
    this.#rows.delete(id);
    this.#index.get(topic)?.delete(id);
    this.#unseen.get(topic)?.delete(id);
  }

  /** @param {string} topic */
  #idsOf(topic) {
    return this.#hasManyTopics ? [...this.#indexOf(topic)] : [...this.#rows.keys()];
  }

  /** @param {string} topic */
  #indexOf(topic) {
    const ids = this.#index.get(topic) ?? new Set();
    this.#index.set(topic, ids);
    return ids;
  }
}
