// The JavaScript client on the cases of `tests/vectors/`, which it shares with gateway, Python client and pipeline.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { isForeign, isOfTopic, isTemporary, Problem } from "../../clients/js/client/errors.js";
import { intervalOf, milliseconds } from "../../clients/js/client/interval.js";
import { equal, parse, parseEvent, patched, stringify } from "../../clients/js/client/json.js";
import { inOrder, keyText, stepsOf } from "../../clients/js/client/order.js";
import { Replica } from "../../clients/js/client/replica.js";
import { Parser } from "../../clients/js/client/sse.js";
import { Stream } from "../../clients/js/client/stream.js";

const read = (file) => JSON.parse(readFileSync(new URL(`../vectors/${file}.json`, import.meta.url)));
const [paths, keys, order, numbers, durations, deltas, resume] = ["paths", "keys", "order", "numbers", "durations", "deltas", "resume"].map(read);

// A row as it stands in an event, with texts of JSON for its key and its value.
const row = (op, key, value) => parseEvent(`{"topic":"px","op":"${op}","key":${key},"bookmark":"e-1","value":${value}}`);

test("a path names its place", () => {
  for (const { text, steps, why } of paths.paths) assert.deepEqual(stepsOf(text), steps, why);
});

test("a key has the gateway's one spelling", () => {
  for (const { text, why } of keys.records) assert.equal(keyText(parse(text)), text, why);
  for (const { text, key, why } of keys.groups) assert.equal(keyText(parse(text)), key, why);
});

test("each key is one record, which is found however the key is written", () => {
  const replica = new Replica();
  const texts = new Set([...keys.records.map(({ text }) => text), ...keys.written.map(({ key }) => key)]);
  for (const text of texts) replica.take("message", row("publish", text, "1"));
  assert.equal(replica.rows.size, texts.size);
  for (const { text, key, why } of keys.written) {
    const found = replica.rows.get(replica.idOf(parse(text), "px"));
    assert.equal(found && keyText(found.key), key, why);
  }
});

test("rows are in the gateway's order", () => {
  for (const { order: text, rows, why } of order.orders) {
    const taken = rows.map(([key, value], at) => ({ ...row("publish", key, value), at }));
    const found = inOrder([...taken].reverse(), text).map(({ at }) => at);
    assert.deepEqual(found, rows.map((_, at) => at), why);
  }
});

test("a number is read and written", () => {
  for (const { text, javascript, why } of numbers.numbers) assert.equal(stringify(parse(text)), javascript, why);
  for (const { text, why } of numbers.not_json) assert.throws(() => parse(text), SyntaxError, why);
});

test("a number beyond a double is an error, and costs its record alone", () => {
  for (const { text, why } of numbers.refused) {
    assert.throws(() => parse(text), RangeError, why);
    const replica = new Replica();
    for (const value of ["1", text]) replica.take("message", row("publish", '["a"]', value));
    replica.take("message", row("publish", '["b"]', "1"));
    assert.deepEqual([...replica.rows.keys()], ['["b"]'], why);
  }
});

test("values are compared by what they say", () => {
  for (const { one, other, are_equal, why } of numbers.comparisons) {
    assert.equal(equal(parse(one), parse(other)), are_equal, why);
    assert.equal(equal(parse(other), parse(one)), are_equal, why);
  }
});

test("a duration has its length in milliseconds", () => {
  for (const { text, ns, why } of durations.durations) assert.ok(Math.abs(milliseconds(text) * 1e6 - ns) <= ns * 1e-15, why);
  for (const { text, why } of durations.refused) assert.equal(milliseconds(text), NaN, why);
});

test("the interval is found in granted options", () => {
  for (const { text, granted, why } of durations.intervals) {
    assert.equal(intervalOf(`oof,conflation=${granted},pace=batch`), granted, why);
    assert.equal(milliseconds(text), milliseconds(granted), why);
  }
});

test("a patch is applied, and neither part is changed", () => {
  for (const { record, patch, result, why } of deltas.patches) {
    const [before, change] = [parse(record), parse(patch)];
    assert.deepEqual(patched(before, change), parse(result), why);
    assert.deepEqual([before, change], [parse(record), parse(patch)], why);
  }
});

test("a record follows what is published, by delta or as a whole", () => {
  for (const { record, next, delta, why } of deltas.changes) {
    const replica = new Replica();
    replica.take("message", row("snapshot", '["a"]', record));
    const taken = replica.take("message", row(delta === null ? "publish" : "delta", '["a"]', delta ?? next));
    assert.ok(equal(replica.rows.get('["a"]').value, parse(next)), why);
    assert.equal(taken.changes.changed.length, 1, why);
  }
});

test("a stream comes back with the id that it has to send", async () => {
  for (const { before, sent, id, why } of resume.streams) {
    assert.deepEqual(await idsAsked(before, [sent]), [before, id], why);
    assert.deepEqual(await idsAsked(before, sent), [before, id], `${why}, byte by byte`);
  }
});

test("a stream says how long to wait", () => {
  for (const { before, sent, retry_ms, why } of resume.streams) {
    const parser = new Parser(before);
    parser.feed(new TextEncoder().encode(sent));
    assert.equal(parser.retryMs, retry_ms, why);
  }
});

test("a refusal after a grant is an outage, or the end", () => {
  for (const { status, code, passes, why } of resume.refusals) {
    const problem = new Problem(status, code ? { code } : {});
    assert.equal(isTemporary(problem) || isForeign(problem) || isOfTopic(problem), passes, why);
  }
});

// The ids with which a stream is opened behind the one before: an id alone, then these pieces.
async function idsAsked(before, pieces) {
  const asked = [];
  const encoder = new TextEncoder();
  const texts = typeof pieces === "string" ? [...encoder.encode(pieces)].map((byte) => Uint8Array.of(byte)) : pieces.map((text) => encoder.encode(text));
  const connections = [[encoder.encode(`id: ${before}\nretry: 0\n\n`)], texts];
  const stream = new Stream({
    open: async (lastId) => {
      asked.push(lastId);
      const parts = connections.shift();
      if (parts === undefined) return new Response(null, { status: 204 });
      return new Response(new ReadableStream({
        start(controller) {
          for (const part of parts) controller.enqueue(part);
          controller.close();
        },
      }));
    },
    event: () => {},
    lost: () => setTimeout(() => stream.wake()),
    parsed: parse,
  });
  await stream.run();
  return asked.slice(1);
}
