import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { milliseconds } from "../../clients/js/client/interval.js";
import { parse } from "../../clients/js/client/json.js";
import { inOrder, keyText, stepsOf } from "../../clients/js/client/order.js";

// Written with the gateway's functions, which tests/clients/test_vectors.py plays them to as well.
const vectors = JSON.parse(readFileSync(new URL("../clients/vectors.json", import.meta.url)));

test("paths name the places that they name in the gateway", () => {
  for (const [text, steps] of vectors.paths) assert.deepEqual(stepsOf(text), steps, text);
});

test("keys have the gateway's one spelling", () => {
  for (const [text, key] of vectors.keys) assert.equal(keyText(parse(text)), key);
});

test("durations are as long as in the gateway", () => {
  for (const [text, ns] of vectors.durations) assert.equal(Math.round(1e6 * milliseconds(text)), ns ?? NaN, text);
});

test("rows are in the gateway's order", () => {
  for (const { order, rows } of vectors.orders) {
    const read = rows.map(([key, value]) => ({ topic: "px", key: parse(key), value: parse(value), text: `${key} ${value}` }));
    const texts = read.map(({ text }) => text);
    const shuffled = [...read.filter((_, at) => at % 2), ...read.filter((_, at) => at % 2 === 0)].reverse();
    assert.deepEqual(inOrder(shuffled, order).map(({ text }) => text), texts, order);
  }
});
