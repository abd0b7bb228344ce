import assert from "node:assert/strict";
import { test } from "node:test";

import { connect, Unreachable } from "../../clients/js/client.js";
import { Backoff, repeated } from "../../clients/js/client/retry.js";
import { FakeGateway, json, problem } from "./fake_gateway.mjs";

const MESSAGES = /messages/;

function begun(context) {
  context.mock.method(Math, "random", () => 0);
  const fake = new FakeGateway();
  return { fake, gateway: connect("http://gateway:1", { fetch: fake.fetch }) };
}

const out = () => problem(503, "bus-unavailable");
const lost = () => Promise.reject(new TypeError("fetch failed"));

test("a publish is repeated under the same key while the gateway is out", async (context) => {
  const { fake, gateway } = begun(context);
  fake.once("POST", MESSAGES, out);
  fake.once("POST", MESSAGES, lost);
  fake.once("POST", MESSAGES, () => json({ topic: "px", messages: 1, duplicate: true }));
  assert.equal((await gateway.publish("px", { id: 12345678901234567890n }, { ack: "processed", never: true })).messages, 1);
  assert.equal(fake.requests.length, 3);
  const keys = new Set(fake.headers.map((headers) => headers.get("Idempotency-Key")));
  assert.equal(keys.size, 1);
  assert.match([...keys][0], /^[0-9a-f]{32}$/);
  assert.equal(fake.requests[0][1], "/v1/topics/px/messages?ack=processed");
  assert.equal(fake.headers[0].get("Tidegate-Conflate"), "never");
  await gateway.publish("px", [1, 2]);
  assert.notEqual(fake.headers[3].get("Idempotency-Key"), [...keys][0]);
});

test("a publish is repeated while another server answers", async (context) => {
  const html = { headers: { "Content-Type": "text/html" } };
  const others = [
    () => new Response("default backend - 404", { status: 404 }),
    () => json({ code: "AccessDenied" }, 403),
    () => new Response("<html>We will be back soon", html),
    () => json({ status: "maintenance" }),
    () => new Response(null, { status: 204 }),
  ];
  for (const other of others) {
    const { fake, gateway } = begun(context);
    fake.once("POST", MESSAGES, other);
    assert.equal((await gateway.publish("px", {})).messages, 1);
    assert.equal(fake.requests.length, 2);
  }
});

test("a refused publish is not repeated, and one without patience neither", async (context) => {
  const { fake, gateway } = begun(context);
  fake.once("POST", MESSAGES, () => problem(422, "key-missing"));
  await assert.rejects(gateway.publish("px", {}), { code: "key-missing" });
  fake.once("POST", MESSAGES, out);
  await assert.rejects(gateway.publish("px", {}, { patienceMs: 0 }), { code: "bus-unavailable" });
  fake.once("POST", MESSAGES, lost);
  await assert.rejects(gateway.publish("px", {}, { patienceMs: 0 }), Unreachable);
  assert.equal(fake.requests.length, 3);
});

test("a producer numbers its requests, sends one at a time and keeps the number of a refused one", async (context) => {
  const { fake, gateway } = begun(context);
  const producer = gateway.producer("feed", 7);
  fake.once("POST", MESSAGES, out);
  const refused = () => problem(422, "key-missing");
  const all = [producer.publish("px", 1)];
  all.push(all[0].then(() => fake.once("POST", MESSAGES, refused)).then(() => producer.publish("px", 2).catch((error) => error.code)));
  assert.deepEqual((await Promise.all(all))[1], "key-missing");
  await Promise.all([producer.publish("px", 3), producer.publish("px", 4)]);
  assert.deepEqual(fake.headers.map((headers) => Number(headers.get("Tidegate-Sequence"))), [7, 7, 8, 8, 9]);
  assert.deepEqual(fake.requests.map((request) => request[2]), [1, 1, 2, 3, 4]);
  assert.equal(fake.headers[0].get("Tidegate-Producer"), "feed");
  assert.equal(fake.headers[0].get("Idempotency-Key"), null);
  assert.equal(producer.sequence, 10);
});

test("definitions that have not changed are not sent again", async (context) => {
  const { fake, gateway } = begun(context);
  const page = { topics: [{ topic: "a" }], next: "/v1/topics?limit=1000&after=a" };
  fake.once("GET", /after=a/, () => json({ topics: [{ topic: "b" }], next: null }, 200, { ETag: '"2"' }));
  fake.once("GET", /topics/, () => json(page, 200, { ETag: '"1"' }));
  for (let round = 0; round < 2; round += 1) {
    assert.deepEqual((await gateway.topics()).map(({ topic }) => topic), ["a", "b"]);
    for (let count = 0; count < 2; count += 1) fake.once("GET", /topics/, () => new Response(null, { status: 304 }));
  }
  assert.deepEqual(fake.headers.map((headers) => headers.get("If-None-Match")), [null, null, '"1"', '"2"']);
});

test("waits double up to their bound, with full jitter, above what the gateway asked for", () => {
  const whole = new Backoff(30_000, () => 1);
  assert.deepEqual(Array.from({ length: 9 }, () => whole.waitMs(100)), [350, 600, 1100, 2100, 4100, 8100, 16100, 30100, 30100]);
  whole.succeeded();
  assert.equal(whole.waitMs(), 250);
  assert.equal(new Backoff(30_000, () => 0).waitMs(), 0);
  // Old prices are on the screen: whatever the outage, the next attempt is near.
  const usual = new Backoff(undefined, () => 1);
  assert.equal(Math.max(...Array.from({ length: 90 }, () => usual.waitMs())), 5_000);
});

test("patience is counted from the first failure", async (context) => {
  context.mock.method(Math, "random", () => 0.02);
  const began = performance.now();
  await assert.rejects(repeated(() => Promise.reject(new Unreachable("out")), { patienceMs: 60 }));
  assert.ok(performance.now() - began >= 5);
});

test("a wait beyond the end of patience is not begun", async () => {
  let count = 0;
  const ask = () => {
    count += 1;
    throw new Unreachable("out");
  };
  await assert.rejects(repeated(ask, { patienceMs: 5 }));
  assert.ok(count <= 6);
});

test("when a gateway does not answer, the next one is asked", async (context) => {
  context.mock.method(Math, "random", () => 0);
  const asked = [];
  const answers = [() => lost(), () => out(), () => json({ messages: 1 }), () => json({ messages: 1 })];
  const ask = (url) => {
    asked.push(new URL(url).host);
    return answers.shift()();
  };
  const gateway = connect(["http://a:1", "http://b:1"], { fetch: ask });
  await gateway.publish("px", 1);
  await gateway.publish("px", 2);
  assert.deepEqual(asked, ["a:1", "b:1", "a:1", "a:1"]);
  assert.throws(() => connect([]), TypeError);
});

test("an address is one, with nothing behind it", () => {
  for (const address of ["gateway:1", "http://a/path", "http://", "http://a?b"]) assert.throws(() => connect(address), TypeError);
  connect("http://gateway:1/");
  connect("");
});

test("a refusal names what was refused, once", async (context) => {
  const asked = async (method, path, json, detail = "because") => {
    const headers = { "Content-Type": "application/problem+json" };
    const fetch = async () => new Response(JSON.stringify({ title: "No", detail, code: "forbidden" }), { status: 403, headers });
    const gateway = connect("http://gateway:1", { fetch });
    context.after(() => gateway.close());
    return gateway.request(method, path, { json }).catch((error) => [error.about, error.message]);
  };
  assert.deepEqual(await asked("PUT", "/v1/topics/px.a?x=/v1"), ["topic px.a", "No (topic px.a): because"]);
  assert.deepEqual(await asked("GET", "/v1/topics/px", undefined, "There is no topic px."), ["topic px", "No: There is no topic px."]);
  assert.deepEqual(await asked("GET", "/v1/topics/px/sow/%5B1%5D"), ["record [1] of topic px", "No (record [1] of topic px): because"]);
  assert.deepEqual(await asked("DELETE", "/v1/sessions/s1/subscriptions/s2"), ["subscription s2 of session s1", "No (subscription s2 of session s1): because"]);
  assert.deepEqual(await asked("POST", "/v1/sessions/s1/subscriptions", { topic: "px" }), ["topic px", "No (topic px): because"]);
  assert.deepEqual(await asked("GET", "/v1/topics/%E0%A4%A"), ["topic %E0%A4%A", "No (topic %E0%A4%A): because"]);
  assert.deepEqual(await asked("GET", "/v1/topics"), ["", "No: because"]);
});
