import assert from "node:assert/strict";
import { test } from "node:test";

import { connect } from "../../clients/js/client.js";
import { FakeGateway, json, problem, settled } from "./fake_gateway.mjs";

const SESSIONS = /\/v1\/sessions$/;
const SUBSCRIPTIONS = /\/subscriptions$/;
const EVENTS = /\/events$/;
const STREAM = /\/stream\?/;
const HELLO_MS = 15_000;
const AGAIN_MS = 120_000;

// Timers of minutes and quarters of them end when a test says so; others as they would.
function timers(context) {
  const held = new Map();
  const { setTimeout: later, clearTimeout: forget } = globalThis;
  context.mock.method(globalThis, "setTimeout", (end, ms) => {
    if (ms < 1_000) return later(end, ms);
    const timer = {};
    held.set(timer, { end, ms });
    return timer;
  });
  context.mock.method(globalThis, "clearTimeout", (timer) => held.delete(timer) || forget(timer));
  return async (ms) => {
    const due = [...held].filter(([, each]) => each.ms === ms);
    assert.notEqual(due.length, 0, `nothing waits for ${ms} ms`);
    for (const [timer, { end }] of due) {
      held.delete(timer);
      end();
    }
    await settled();
  };
}

// Answers of a polled stream, which a test gives as they are asked for.
class Polled {
  constructor(fake) {
    this.asked = [];
    const { answer } = fake;
    fake.answer = (url, init) => {
      if (!url.pathname.endsWith("/stream")) return answer.call(fake, url, init);
      fake.requests.push(["GET", url.pathname + url.search]);
      for (const wake of fake.waiting.splice(0)) wake();
      return new Promise((resolve, reject) => {
        init.signal.addEventListener("abort", () => reject(new Error("aborted")));
        this.asked.push({ topic: url.pathname.split("/")[3], query: Object.fromEntries(url.searchParams), resolve });
      });
    };
  }

  async answer(rows, next, { isWhole = true, status = 200 } = {}) {
    const headers = { "Stream-Next-Offset": next, "Stream-Cursor": "7", ...(isWhole && { "Stream-Up-To-Date": "true" }) };
    const { resolve } = this.asked.shift();
    resolve(status === 204 ? new Response(null, { status, headers }) : json(rows, status, headers));
    await settled();
  }

  async refuse(answer) {
    this.asked.shift().resolve(answer);
    await settled();
  }
}

const put = (key, value, operation = "update") => ({ type: "px", key: JSON.stringify([key]), value, headers: { operation } });
const gone = (key) => ({ type: "px", key: JSON.stringify([key]), headers: { operation: "delete" } });
const keys = (subscription) => [...subscription.rows.keys()].join();

// A client before whose gateway a proxy keeps the stream back: no event has come in time.
async function heldBack(context, wishes = [{ interval: "1s" }], topics = ["px", "or", "p3", "p4", "p5", "p6"]) {
  context.mock.method(Math, "random", () => 0);
  const elapse = timers(context);
  const fake = new FakeGateway();
  const polled = new Polled(fake);
  const gateway = connect("http://gateway:1", { fetch: fake.fetch });
  context.after(() => gateway.close());
  const states = [];
  gateway.addEventListener("state", ({ detail }) => states.push(detail.state));
  const subscriptions = wishes.map((wish, number) => gateway.subscribe(topics[number], wish));
  await Promise.all(subscriptions.map((each) => each.granted));
  await fake.until("GET", EVENTS);
  await elapse(HELLO_MS);
  return { fake, gateway, polled, states, elapse, subscriptions, prices: subscriptions[0] };
}

// As `heldBack`, after the second attempt, with the first record polled.
async function polling(context, wishes) {
  const all = await heldBack(context, wishes);
  await all.polled.answer([put("a", 1)], "e_1");
  await all.fake.until("GET", EVENTS, 2);
  await all.elapse(HELLO_MS);
  return all;
}

test("records follow the topic by polling where no event of the stream gets through", async (context) => {
  const { fake, gateway, polled, states, prices, elapse } = await heldBack(context, [{ interval: "1s", filter: "/v > 0" }]);
  assert.deepEqual([prices.state, prices.reason], ["lost", "no event of the stream came within 15 s"]);
  const heard = [];
  prices.addEventListener("change", ({ added, changed, removed }) => {
    heard.push([added, changed, removed].map((rows) => rows.map(({ key }) => key[0]).join()));
  });
  const { query } = polled.asked[0];
  assert.deepEqual(query, { options: "conflation=1s", filter: "/v > 0", format: "state", offset: "-1", live: "long-poll" });
  await polled.answer([put("a", 1), put("b", 1)], "e_1_9", { isWhole: false });
  assert.deepEqual([prices.state, heard], ["lost", []]);
  await polled.answer([put("c", 1), gone("a")], "e_9");
  await prices.ready;
  assert.deepEqual([prices.state, gateway.state, heard.splice(0)], ["polling", "polling", [["b,c", "", ""]]]);
  assert.deepEqual([polled.asked[0].query.offset, polled.asked[0].query.cursor], ["e_9", "7"]);
  await polled.answer([], "e_9", { status: 204 });
  await polled.answer([put("b", 2), put("d", { deep: 9007199254740993n.toString() }), gone("c")], "e_12");
  assert.deepEqual(heard.splice(0), [["d", "b", "c"]]);
  assert.equal(prices.get("b").value, 2);
  assert.equal(prices.get("b").previous, 1);
  // One more attempt, as the gateway may have been slow, and the session ends: nobody reads it.
  await fake.until("GET", EVENTS, 2);
  await elapse(HELLO_MS);
  assert.equal(fake.asked("DELETE", /sessions\/S1$/).length, 1);
  assert.deepEqual(states, ["connecting", "lost", "polling"]);
});

test("integers stay exact, a removal has the value that left, and an unreadable record leaves", async (context) => {
  const { polled, prices } = await heldBack(context);
  const text = '[{"type":"px","key":"[9007199254740993]","value":9007199254740995,"headers":{"operation":"insert"}},'
    + '{"type":"px","key":"[\\"x\\"]","value":1,"headers":{"operation":"insert"}}]';
  const headers = { "Stream-Next-Offset": "e_1", "Stream-Up-To-Date": "true" };
  await polled.refuse(new Response(text, { headers }));
  assert.equal(prices.get(9007199254740993n).value, 9007199254740995n);
  const removed = [];
  prices.addEventListener("change", (event) => removed.push(...event.removed.map(({ key, value, reason }) => [key, value, reason])));
  const unreadable = '[{"type":"px","key":"[\\"x\\"]","value":1e400,"headers":{"operation":"update"}},'
    + '{"type":"px","key":"[9007199254740993]","headers":{"operation":"delete"}},'
    + '{"type":"px","key":"[1e400]","value":1,"headers":{"operation":"insert"}}]';
  await polled.refuse(new Response(unreadable, { headers }));
  assert.deepEqual(removed, [[["x"], 1, "unreadable"], [[9007199254740993n], 9007199254740995n, "missed"]]);
  assert.equal(keys(prices), "");
});

test("a position that is not known any more brings a snapshot, and what it leaves out is gone", async (context) => {
  const { polled, prices } = await heldBack(context);
  await polled.answer([put("a", 1), put("b", 1)], "e_2");
  const changes = [];
  prices.addEventListener("change", ({ added, changed, removed }) => changes.push([added.length, changed.length, removed.map(({ id }) => id).join()]));
  await polled.answer([{ headers: { control: "reset" } }, put("b", 1, "insert")], "f_1_2", { isWhole: false });
  assert.equal(keys(prices), '["a"],["b"]');
  await polled.answer([put("c", 1, "insert")], "f_2");
  assert.deepEqual(changes, [[1, 0, '["a"]']]);
});

test("the stream is tried again after minutes, and once it gets through nothing is polled", async (context) => {
  const { fake, gateway, polled, states, elapse, prices } = await polling(context);
  const heard = [];
  prices.addEventListener("state", ({ detail }) => heard.push(detail.state));
  await elapse(AGAIN_MS);
  // Without subscriptions: the proxy would keep their snapshots back as well.
  assert.deepEqual([fake.asked("POST", SESSIONS).length, fake.asked("POST", SUBSCRIPTIONS).length], [2, 1]);
  await elapse(HELLO_MS);
  assert.equal(fake.asked("DELETE", /sessions\/S2$/).length, 1);
  await polled.answer([put("b", 1)], "e_2");
  assert.deepEqual([keys(prices), heard, states], ['["a"],["b"]', [], ["connecting", "lost", "polling"]]);
  await elapse(AGAIN_MS);
  const stream = fake.streams.at(-1);
  await stream.hello();
  assert.equal(fake.asked("POST", SUBSCRIPTIONS).length, 2);
  assert.deepEqual([gateway.state, prices.state], ["live", "polling"]);
  await stream.snapshot("s2", "px", [["b", 1], ["c", 1]]);
  assert.deepEqual([keys(prices), prices.state], ['["b"],["c"]', "live"]);
  const asked = fake.asked("GET", STREAM).length;
  await stream.rows("s2", "px", [["b", 2]], "S3-3~e-3");
  assert.equal(prices.get("b").value, 2);
  assert.equal(fake.asked("GET", STREAM).length, asked);
});

test("a stream that was slow goes on with what it has, and what was polled begins again", async (context) => {
  const { fake, polled, prices } = await heldBack(context);
  await polled.answer([put("a", 1)], "e_1");
  await fake.until("GET", EVENTS, 2);
  const stream = fake.streams.at(-1);
  await stream.hello();
  await fake.until("DELETE", /subscriptions\/s1$/);
  assert.equal(fake.asked("POST", SESSIONS).length, 1);
  await stream.snapshot("s2", "px", [["b", 1]]);
  assert.deepEqual([keys(prices), prices.state], ['["b"]', "live"]);
});

test("without an answer to polling it is an outage, and the stream is tried as ever", async (context) => {
  const { fake, gateway, polled, prices } = await heldBack(context);
  await polled.refuse(new Response("<html>", { status: 502 }));
  await fake.until("GET", EVENTS, 2);
  assert.deepEqual([gateway.state, prices.state, fake.asked("DELETE", /sessions/).length], ["lost", "lost", 0]);
});

test("what answers without a position is no gateway", async (context) => {
  const { polled, prices } = await heldBack(context);
  await polled.refuse(json({ sign: "in" }));
  assert.deepEqual([prices.state, prices.rows.size], ["lost", 0]);
  assert.match(prices.reason, /names no position/);
});

test("once polling fails as well the session is tried at once, and says what is wrong", async (context) => {
  const { fake, gateway, polled, prices } = await polling(context);
  fake.once("POST", SESSIONS, () => problem(401, "unauthenticated"));
  await polled.refuse(problem(401, "unauthenticated"));
  assert.deepEqual([gateway.state, prices.state, prices.end], ["closed", "closed", "unauthenticated"]);
});

test("what polling cannot bring says so, and goes on waiting for the stream", async (context) => {
  const wishes = [{ interval: "1s" }, { interval: "none" }, { interval: "1s", command: "subscribe" }, { interval: "auto" }, { interval: "1s" }];
  const { elapse, fake, polled, subscriptions } = await heldBack(context, wishes, ["px", "or", "p3", "p4", "p.*"]);
  await polled.answer([put("a", 1)], "e_1");
  assert.deepEqual(polled.asked.map(({ query }) => query.options), ["conflation=auto", "conflation=1s"]);
  await polled.refuse(problem(400, "options-invalid"));
  const cannot = "no event of the stream gets through, and polling cannot replace it: ";
  assert.deepEqual(subscriptions.map(({ state, reason }) => [state, reason.replace(cannot, "")]), [
    ["polling", "polled, as no event of the stream gets through"],
    ["lost", "every message is asked for, and polling brings the newest of each key"],
    ["lost", "the command subscribe is not polled"],
    ["lost", "options-invalid (topic p4): because"],
    ["lost", "a pattern is not polled"],
  ]);
  await fake.until("GET", EVENTS, 2);
  await elapse(HELLO_MS);
  await elapse(AGAIN_MS);
  await fake.streams.at(-1).hello();
  assert.equal(fake.asked("POST", SUBSCRIPTIONS).length, 10);
});

test("a subscription that is made meanwhile is granted, refused and polled without a session", async (context) => {
  const { fake, gateway, polled } = await polling(context);
  polled.asked.splice(0);
  fake.once("POST", /explain$/, () => problem(400, "filter-invalid"));
  await assert.rejects(gateway.subscribe("or", { filter: "/" }).granted, { code: "filter-invalid" });
  fake.once("POST", /explain$/, () => json({ topic: "or", options: "conflation=1s,oof" }));
  const orders = gateway.subscribe("or", { interval: "1s" });
  assert.equal((await orders.granted).options, "conflation=1s,oof");
  await settled();
  await polled.answer([{ ...put("x", 1), type: "or" }], "e_1");
  await orders.ready;
  assert.deepEqual([orders.state, keys(orders)], ["polling", '["x"]']);
  await orders.close();
  assert.equal(polled.asked.length, 1);
});

test("a change begins to poll again, and a refused one changes nothing", async (context) => {
  const { fake, polled, prices } = await polling(context);
  fake.once("POST", /explain$/, () => problem(400, "filter-invalid"));
  await assert.rejects(prices.change({ filter: "/" }), { code: "filter-invalid" });
  fake.once("POST", /explain$/, () => json({ topic: "px", options: "conflation=2s,oof" }));
  await prices.change({ interval: "2s" });
  await settled();
  const { query } = polled.asked.splice(0).at(-1);
  assert.deepEqual([query.options, query.filter, query.offset], ["conflation=2s", undefined, "-1"]);
});

test("four requests wait at once, and others come back at their interval", async (context) => {
  const { polled, elapse } = await heldBack(context, Array(6).fill({ interval: "2s" }));
  assert.deepEqual(polled.asked.map(({ query }) => query.live), [...Array(4).fill("long-poll"), undefined, undefined]);
  const [waiting, plain] = [polled.asked.splice(0, 4), polled.asked];
  assert.equal(plain.length, 2);
  await polled.answer([put("a", 1)], "e_1");
  await polled.answer([put("a", 1)], "e_1");
  assert.equal(polled.asked.length, 0);
  await elapse(2_000);
  assert.deepEqual(polled.asked.map(({ query }) => [query.offset, query.live]), [["e_1", undefined], ["e_1", undefined]]);
  polled.asked.splice(0, 2, waiting[0]);
  await polled.answer([put("a", 1)], "e_1");
  assert.equal(polled.asked[0].query.live, "long-poll");
});
