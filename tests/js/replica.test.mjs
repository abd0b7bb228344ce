import assert from "node:assert/strict";
import { test } from "node:test";

import { parseEvent } from "../../clients/js/client/json.js";
import { Reader } from "../../clients/js/client/reader.js";
import { Changes, RecordMissing, Replica } from "../../clients/js/client/replica.js";
import { Subscription } from "../../clients/js/client/subscription.js";

const row = (key, value, op = "publish", more = {}) => ({ topic: "px", op, key: [key], bookmark: "e-1", value, ...more });
const batch = (...rows) => ({ sub: "s1", topic: "px", rows });
const ids = (rows) => rows.map(({ id }) => id);
const shown = (changes) => ({ added: ids(changes.added), changed: ids(changes.changed), removed: ids(changes.removed) });

function filled(...rows) {
  const replica = new Replica();
  replica.take("group_begin", { topic: "px" });
  replica.take("message", batch(...rows));
  replica.take("group_end", { topic: "px" });
  return replica;
}

test("rows come, change and go", () => {
  const replica = new Replica();
  const first = replica.take("message", batch(row("a", { v: 1 }), row("b", { v: 1 })));
  assert.deepEqual(shown(first.changes), { added: ['["a"]', '["b"]'], changed: [], removed: [] });
  const second = replica.take("message", batch(row("a", { v: 2 }), row("b", { v: 1 }, "oof", { reason: "expired" })));
  assert.deepEqual(shown(second.changes), { added: [], changed: ['["a"]'], removed: ['["b"]'] });
  assert.deepEqual(second.changes.changed[0].previous, { v: 1 });
  assert.equal(second.changes.removed[0].reason, "expired");
  assert.deepEqual([...replica.rows.keys()], ['["a"]']);
});

test("a message with the same value is a change: something has happened", () => {
  const replica = filled(row("a", { v: 1 }));
  assert.deepEqual(ids(replica.take("message", batch(row("a", { v: 1 }))).changes.changed), ['["a"]']);
});

test("a removal of a record that is not held is nothing", () => {
  const { changes, rows } = new Replica().take("message", batch(row("a", null, "oof")));
  assert.equal(changes.size, 0);
  assert.equal(rows.length, 1);
});

test("deltas are applied to the record, and one without a record is an error", () => {
  const replica = filled(row("a", { k: "a", v: 1, w: { x: 1, y: 2 } }, "snapshot"));
  replica.take("message", batch(row("a", { v: null, w: { x: 3 } }, "delta")));
  assert.deepEqual(replica.rows.get('["a"]').value, { k: "a", w: { x: 3, y: 2 } });
  const { rows, changes, missing } = replica.take("message", batch(row("b", { v: 1 }, "delta"), row("c", 1)));
  assert.ok(missing instanceof RecordMissing);
  assert.deepEqual([ids(rows), ids(changes.added)], [['["c"]'], ['["c"]']]);
});

test("keys that differ beyond 2^53 are two records, and 1 and \"1\" are, too", () => {
  const replica = filled(row(9007199254740993n, 1), row(9007199254740992n, 2), row(1, 3), row("1", 4));
  assert.equal(replica.rows.size, 4);
});

test("a later snapshot changes what has changed, and takes away what it leaves out", () => {
  const replica = filled(row("a", { v: 1 }), row("b", { v: 1 }), row("c", { v: 1 }));
  assert.equal(replica.take("group_begin", { topic: "px" }).changes.size, 0);
  const { changes } = replica.take("message", batch(row("a", { v: 1 }, "snapshot"), row("b", { v: 2 }, "snapshot"), row("d", 1, "snapshot")));
  assert.deepEqual(shown(changes), { added: ['["d"]'], changed: ['["b"]'], removed: [] });
  const end = replica.take("group_end", { topic: "px" }).changes;
  assert.deepEqual(shown(end), { added: [], changed: [], removed: ['["c"]'] });
  assert.equal(end.removed[0].reason, "missed");
});

test("a snapshot that was cut off begins again without losing anything", () => {
  const replica = filled(row("a", 1), row("b", 1));
  replica.take("group_begin", { topic: "px" });
  replica.take("message", batch(row("a", 1, "snapshot")));
  replica.take("group_begin", { topic: "px" });
  const { changes } = replica.take("message", batch(row("b", 1, "snapshot")));
  assert.equal(changes.size, 0);
  assert.deepEqual(shown(replica.take("group_end", { topic: "px" }).changes).removed, ['["a"]']);
});

test("a pattern's topics keep their records apart, and one of them can leave", () => {
  const replica = new Replica(true);
  replica.take("message", { rows: [row("a", 1), row("a", 2, "publish", { topic: "py" })] });
  assert.deepEqual([...replica.rows.keys()], ['px ["a"]', 'py ["a"]']);
  replica.take("message", { rows: [row("b", 1), row("b", 1, "oof")] });
  replica.take("group_begin", { topic: "px" });
  replica.take("message", { rows: [row("c", 1, "snapshot")] });
  assert.deepEqual(shown(replica.take("group_end", { topic: "px" }).changes).removed, ['px ["a"]']);
  const { changes } = replica.take("unsubscribed", { topic: "py", reason: "REMOVED" });
  assert.deepEqual(shown(changes).removed, ['py ["a"]']);
  assert.equal(replica.take("unsubscribed", { topic: "px", reason: "BACK_PRESSURE" }).changes.size, 0);
  const left = replica.take("unsubscribed", { topic: "px", reason: "AUTHORIZATION" }).changes;
  assert.deepEqual(left.removed.map(({ id, reason }) => [id, reason]), [['px ["c"]', "unsubscribed"]]);
  assert.equal(filled(row("a", 1)).take("unsubscribed", { topic: "px", reason: "AUTHORIZATION" }).changes.size, 0);
});

test("what a pattern has lost while there was no stream is missed", () => {
  const replica = new Replica(true);
  replica.take("message", { rows: [row("a", 1), row("a", 2, "publish", { topic: "py" })] });
  assert.equal(replica.begin().size, 0);
  const { removed } = replica.begin([{ topic: "px" }, { topic: "pz" }]);
  assert.deepEqual(removed.map(({ id, reason }) => [id, reason]), [['py ["a"]', "missed"]]);
  assert.deepEqual([...replica.rows.keys()], ['px ["a"]']);
});

test("a replica can be told to another one, in the middle of a snapshot as well", () => {
  const replica = filled(row("a", 1), row("b", 2));
  const other = filled(row("x", 0), row("a", 1));
  for (const { name, fields } of replica.snapshot()) other.take(name, fields);
  assert.deepEqual([...other.rows.keys()].sort(), ['["a"]', '["b"]']);
  replica.take("group_begin", { topic: "px" });
  replica.take("message", batch(row("a", 1, "snapshot")));
  const third = filled(row("y", 0));
  for (const { name, fields } of replica.snapshot()) third.take(name, fields);
  assert.deepEqual([...third.rows.keys()].sort(), ['["a"]', '["y"]']);
});

test("a replica can be told what deltas without a snapshot build on", () => {
  const replica = new Replica();
  replica.take("message", batch(row("a", { v: 1, w: 1 })));
  const other = new Replica();
  for (const { name, fields } of replica.snapshot()) other.take(name, fields);
  assert.equal(other.rows.size, 0);
  for (const { name, fields } of replica.snapshot(true)) other.take(name, fields);
  other.take("message", batch(row("a", { v: 2 }, "delta")));
  assert.deepEqual(other.rows.get('["a"]').value, { v: 2, w: 1 });
});

test("changes that a reader has not read yet become their net effect", () => {
  const replica = filled(row("a", { v: 1 }), row("b", { v: 1 }), row("c", { v: 1 }));
  const all = new Changes();
  const take = (...rows) => all.join(replica.take("message", batch(...rows)).changes);
  take(row("a", { v: 2 }), row("n", { v: 1 }), row("b", { v: 1 }, "oof"), row("m", { v: 1 }));
  take(row("a", { v: 3 }), row("n", { v: 2 }), row("b", { v: 7 }), row("m", null, "oof"), row("c", { v: 2 }));
  take(row("c", null, "oof"));
  assert.deepEqual(shown(all), { added: ['["n"]'], changed: ['["a"]', '["b"]'], removed: ['["c"]'] });
  assert.deepEqual(all.changed.map(({ previous, value }) => [previous, value]), [[{ v: 1 }, { v: 3 }], [{ v: 1 }, { v: 7 }]]);
  assert.deepEqual(all.removed[0].previous, { v: 1 });
  assert.deepEqual(all.added[0].value, { v: 2 });
});

test("a row that cannot be read costs its record and no other", () => {
  const replica = filled(row("a", { v: 1 }), row("b", { v: 1 }));
  const bad = (op = "publish") => ({ topic: "px", op, key: ["a"], bookmark: "e-1", unreadable: "a number beyond a double" });
  const first = replica.take("message", batch(bad(), row("b", { v: 2 })));
  assert.deepEqual(shown(first.changes), { added: [], changed: ['["b"]'], removed: ['["a"]'] });
  assert.equal(first.changes.removed[0].reason, "unreadable");
  assert.equal(first.unreadable.length, 1);
  // Once, until it can be read again; a delta of it builds on what is not known, which a snapshot tells.
  assert.deepEqual(replica.take("message", batch(bad())).unreadable, []);
  const delta = replica.take("message", batch(row("a", { w: 1 }, "delta")));
  assert.deepEqual([delta.unreadable, delta.rows], [[], []]);
  assert.ok(delta.missing);
  assert.deepEqual(ids(replica.take("message", batch(row("a", { v: 3 }))).changes.added), ['["a"]']);
  assert.equal(replica.take("message", batch(bad("delta"))).unreadable.length, 1);
  const oof = { topic: "px", op: "oof", key: ["a"], bookmark: "e-1" };
  assert.equal(replica.take("message", batch(oof)).rows[0].op, "oof");
  assert.ok(replica.take("message", batch(row("a", {}, "delta"))).missing);
});

test("a key that cannot be read is no other record's", () => {
  const replica = new Replica();
  const text = (key) => parseEvent(`{"topic":"px","op":"publish","key":[${key}],"value":{"v":1e2}}`);
  assert.deepEqual(ids(replica.take("message", text("null")).rows), ["[null]"]);
  for (const key of ["1e400", "-1e400"]) assert.equal(replica.take("message", text(key)).unreadable.length, 1);
  assert.equal(replica.take("message", text("1e400")).unreadable.length, 0);
  assert.deepEqual([...replica.rows.keys()], ["[null]"]);
});

test("a subscription tells of a record that cannot be read", () => {
  const subscription = new Subscription({ add() {} }, "px", {});
  const told = [];
  subscription.addEventListener("unreadable", ({ detail }) => told.push(detail));
  const text = '{"topic":"px","rows":[{"topic":"px","op":"publish","key":["a"],"value":{"v":[1e400]}}]}';
  subscription.take("message", parseEvent(text), "s-1~e-1");
  assert.deepEqual(told, [{ topic: "px", key: ["a"], reason: "a number beyond a double" }]);
  assert.equal(subscription.rows.size, 0);
});

test("a reader that waits can be ended, and one that is behind gets one change", async () => {
  const replica = new Replica();
  let hasLeft = false;
  const reader = new Reader(new Changes(), () => (hasLeft = true));
  for (const v of [1, 2, 3]) {
    const { rows, changes } = replica.take("message", batch(row("a", v)));
    reader.push(rows);
    reader.join(changes);
  }
  const { value } = await reader.next();
  assert.deepEqual(value.added.map((each) => each.value), [3]);
  const waiting = reader.next();
  await reader.return();
  assert.deepEqual(await waiting, { value: undefined, done: true });
  assert.ok(hasLeft);
});
