import assert from "node:assert/strict";
import { test } from "node:test";

import { Parser } from "../../clients/js/client/sse.js";

const bytes = (text) => new TextEncoder().encode(text);

function events(text, size = text.length) {
  const parser = new Parser();
  const whole = bytes(text);
  const found = [];
  for (let at = 0; at < whole.length; at += size) found.push(...parser.feed(whole.slice(at, at + size)));
  return { found, parser };
}

const STREAM = [
  "\uFEFFevent: hello\nid: s-1\ndata: {\"a\":\"é€😀\"}\n\n",
  ": a comment\n\n",
  "data: one\r\ndata:two\r\ndata:  three\r\n\r\n",
  "retry: 2500\rid: s-2\r\r",
  "data\n\n",
  "nonsense: 1\nevent: gone\n\n",
  "id: with\0nul\nretry: soon\ndata: last\n\n",
  "data: cut off",
].join("");

test("an event has its name, its text and the id at that point, however the bytes are cut", () => {
  for (const size of [1, 2, 3, 7, 64, 10_000]) {
    const { found, parser } = events(STREAM, size);
    assert.deepEqual(
      found,
      [
        { name: "hello", text: '{"a":"é€😀"}', id: "s-1" },
        { name: "message", text: "one\ntwo\n three", id: "s-1" },
        { name: "message", text: "", id: "s-2" },
        { name: "message", text: "last", id: "s-2" },
      ],
      `in pieces of ${size}`,
    );
    assert.equal(parser.lastId, "s-2");
    assert.equal(parser.retryMs, 2500);
  }
});

test("bytes that are not UTF-8 are an error, and no wrong data", () => {
  assert.throws(() => new Parser().feed(new Uint8Array([0x64, 0xff, 0xfe])), TypeError);
});
