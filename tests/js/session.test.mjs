import assert from "node:assert/strict";
import { test } from "node:test";

import { connect } from "../../clients/js/client.js";
import { Session } from "../../clients/js/client/session.js";
import { placeAfter } from "../../clients/js/client/subscription.js";
import { Transport } from "../../clients/js/client/transport.js";
import { FakeGateway, json, problem, settled } from "./fake_gateway.mjs";

const SUBSCRIPTIONS = /\/subscriptions$/;
const EVENTS = /\/events$/;

// A gateway, a client of it, and its states; jitter makes no wait longer than it has to be.
function begun(context, options = {}) {
  context.mock.method(Math, "random", () => 0);
  const fake = new FakeGateway();
  const gateway = connect("http://gateway:1", { fetch: fake.fetch, ...options });
  const states = [];
  gateway.addEventListener("state", ({ detail }) => states.push(detail.state));
  context.after(() => gateway.close());
  return { fake, gateway, states };
}

async function live(context, options) {
  const all = begun(context, options);
  const prices = all.gateway.subscribe("px", { interval: "1s" });
  await prices.granted;
  await all.fake.until("GET", EVENTS);
  const [stream] = all.fake.streams;
  await stream.hello();
  await stream.snapshot("s1", "px", [["a", 1], ["b", 1]], "S1-2~e-2");
  return { ...all, prices, stream };
}

const keys = (subscription) => [...subscription.rows.keys()].join();

test("one session and one stream carry every subscription", async (context) => {
  const { fake, gateway, prices, stream } = await live(context);
  const orders = gateway.subscribe("or", { filter: "/a = 1", orderBy: "/v DESC", topN: 5, select: "[-/]", options: "progress" });
  await orders.granted;
  await stream.snapshot("s2", "or", [["x", 1]]);
  assert.equal(fake.asked("POST", /sessions$/).length, 1);
  assert.equal(fake.streams.length, 1);
  assert.deepEqual(fake.asked("POST", SUBSCRIPTIONS).map(([, , body]) => body), [
    { topic: "px", options: "conflation=1s,oof" },
    { topic: "or", options: "top_n=5,select=[-/],progress,oof", filter: "/a = 1", order_by: "/v DESC" },
  ]);
  assert.equal(keys(prices), '["a"],["b"]');
  assert.equal(keys(orders), '["x"]');
});

test("rows that come before the answer with the name are not lost", async (context) => {
  const { fake, gateway, stream } = await live(context);
  let answer;
  fake.once("POST", SUBSCRIPTIONS, () => new Promise((resolve) => (answer = resolve)));
  const late = gateway.subscribe("or");
  await fake.until("POST", SUBSCRIPTIONS, 2);
  await stream.snapshot("s9", "or", [["x", 1]]);
  await stream.rows("s9", "or", [["y", 1]], "S1-9");
  assert.equal(late.rows.size, 0);
  answer(json({ sub: "s9", topic: "or", options: "" }, 201));
  await late.granted;
  assert.equal(keys(late), '["x"],["y"]');
});

test("a refused subscription is an error of its own and of no other", async (context) => {
  const { fake, gateway, prices } = await live(context);
  fake.once("POST", SUBSCRIPTIONS, () => problem(400, "filter-invalid"));
  const refused = gateway.subscribe("or", { filter: "/" });
  await assert.rejects(refused.granted, { name: "Problem", code: "filter-invalid", status: 400 });
  const { end, state, reason, code } = refused;
  assert.deepEqual([end, state, reason, code], ["filter-invalid", "closed", "filter-invalid (topic or): because", "filter-invalid"]);
  assert.equal(prices.end, "");
});

test("a topic without key is asked again without removals, which it does not have", async (context) => {
  const { fake, gateway } = await live(context);
  fake.once("POST", SUBSCRIPTIONS, () => problem(400, "options-invalid"));
  await gateway.subscribe("log").granted;
  assert.deepEqual(fake.asked("POST", SUBSCRIPTIONS).slice(1).map(([, , { options }]) => options), ["oof", ""]);
  for (const wish of [{ removals: true }, {}]) {
    fake.once("POST", SUBSCRIPTIONS, () => problem(400, "options-invalid"));
    await assert.rejects(gateway.subscribe(wish.removals ? "log" : "lo*", wish).granted);
  }
});

test("a topic with a key is not asked again without removals, whatever is refused", async (context) => {
  const { fake, gateway } = await live(context);
  const refusal = (detail, position) => () => json({ code: "options-invalid", title: "No", detail, position }, 400, { "Content-Type": "application/problem+json" });
  const wish = { interval: "1s", options: "conflation_key=[/\u{1f600}]" };
  const count = () => fake.asked("POST", SUBSCRIPTIONS).length - 1;
  fake.once("POST", SUBSCRIPTIONS, refusal("with oof the key is that of the topic.", 14));
  const message = "No (topic or): with oof the key is that of the topic; removals: false leaves removals out.";
  await assert.rejects(gateway.subscribe("or", wish).granted, { code: "options-invalid", position: 14, message });
  fake.once("POST", SUBSCRIPTIONS, refusal("unknown option", 14));
  await assert.rejects(gateway.subscribe("or", wish).granted, { message: "No (topic or): unknown option" });
  assert.equal(count(), 2);
  fake.once("POST", SUBSCRIPTIONS, refusal("oof needs a topic with a key", 34));
  await gateway.subscribe("or", wish).granted;
  assert.equal(count(), 4);
});

test("who replays or asks for messages alone does not ask for removals", async (context) => {
  const { fake, gateway } = await live(context);
  for (const wish of [{ bookmark: "epoch" }, { command: "sow" }, { command: "subscribe" }, { options: "bookmark=now" }, { removals: false }]) {
    await gateway.subscribe("px", wish).granted;
  }
  await gateway.subscribe("px", { options: "conflation=2s, oof" }).granted;
  await gateway.subscribe("px", { options: "timestamp, " }).granted;
  const options = fake.asked("POST", SUBSCRIPTIONS).slice(1).map((each) => each[2].options);
  assert.deepEqual(options, ["bookmark=epoch", "", "", "bookmark=now", "", "conflation=2s, oof", "timestamp,oof"]);
});

test("a lost stream is opened again with the last id, and nothing is asked for twice", async (context) => {
  const { fake, prices, states, stream } = await live(context);
  stream.end();
  await fake.until("GET", EVENTS, 2);
  const again = fake.streams[1];
  assert.equal(again.lastId, "S1-2~e-2");
  await again.hello();
  await again.rows("s1", "px", [["a", 2]], "S1-3~e-3");
  assert.equal(prices.get("a").value, 2);
  assert.deepEqual(states, ["connecting", "live", "lost", "live"]);
  assert.equal(fake.asked("POST", SUBSCRIPTIONS).length, 1);
});

test("a session that is gone is replaced; the records follow the new snapshot", async (context) => {
  const { fake, prices, stream } = await live(context);
  const changes = [];
  prices.addEventListener("change", ({ added, changed, removed }) => {
    changes.push([added, changed, removed].map((rows) => rows.map(({ key }) => key[0]).join()));
  });
  fake.once("GET", EVENTS, () => problem(404, "session-unknown"));
  stream.end();
  await fake.until("GET", EVENTS, 3);
  assert.equal(fake.sessions, 2);
  assert.equal(fake.streams[1].lastId, null);
  await fake.streams[1].hello();
  await fake.streams[1].snapshot("s2", "px", [["b", 1], ["c", 1]]);
  assert.deepEqual(changes, [["c", "", "a"]]);
});

test("a subscription to messages goes on behind the last one in a new session", async (context) => {
  const { fake, gateway, stream } = await live(context);
  fake.once("POST", SUBSCRIPTIONS, () => problem(400, "options-invalid"));
  const log = gateway.subscribe("log");
  await log.granted;
  await stream.send("subscribed", { sub: "s2", topic: "log", bookmark: "e-4" }, "S1-3");
  await stream.rows("s2", "log", [["a", 1]], "S1-4~e-5");
  fake.once("GET", EVENTS, () => problem(404, "session-unknown"));
  fake.once("POST", SUBSCRIPTIONS, (init) => json(fake.granted(JSON.parse(init.body)), 201));
  fake.once("POST", SUBSCRIPTIONS, () => problem(400, "options-invalid"));
  stream.end();
  await fake.until("POST", SUBSCRIPTIONS, 6);
  const [px, withRemovals, without] = fake.asked("POST", SUBSCRIPTIONS).slice(3).map((each) => each[2]);
  assert.deepEqual(px, { topic: "px", options: "conflation=1s,oof" });
  assert.equal(withRemovals.options, "oof");
  assert.equal(without.options, "bookmark=e-5");
});

test("a subscription that cannot go on where it was says so", async (context) => {
  const { fake, gateway, stream } = await live(context);
  const some = gateway.subscribe("lo*", { removals: false });
  await some.granted;
  const heard = [];
  some.addEventListener("resumed", ({ detail }) => heard.push(detail.mode));
  await stream.send("subscribed", { sub: "s2", topic: "log", bookmark: "e-4" }, "S1-3");
  fake.once("GET", EVENTS, () => problem(404, "session-unknown"));
  stream.end();
  await fake.until("POST", SUBSCRIPTIONS, 4);
  assert.deepEqual(fake.asked("POST", SUBSCRIPTIONS).at(-1)[2], { topic: "lo*", options: "" });
  assert.deepEqual(heard, ["now"]);
});

test("a topic that back-pressure took out of a pattern comes again with the pattern", async (context) => {
  const { fake, gateway, stream } = await live(context);
  const some = gateway.subscribe("p*");
  await some.granted;
  await stream.send("unsubscribed", { sub: "s2", topic: "pa", reason: "BACK_PRESSURE" });
  await fake.until("DELETE", /subscriptions\/s2$/);
  await fake.until("POST", SUBSCRIPTIONS, 3);
  await stream.send("unsubscribed", { sub: "s3", topic: "pb", reason: "REMOVED" });
  assert.equal(some.end, "");
});

test("the records of a topic that is gone leave when its pattern begins again", async (context) => {
  const { fake, gateway, stream } = await live(context);
  const next = (sub, ...names) => {
    const topics = names.map((topic) => ({ topic, options: "" }));
    fake.once("POST", SUBSCRIPTIONS, () => json({ sub, topic: "p*", options: null, topics }, 201));
  };
  next("s2", "pa", "pb");
  const some = gateway.subscribe("p*");
  await some.granted;
  await stream.snapshot("s2", "pa", [["a", 1]]);
  await stream.snapshot("s2", "pb", [["b", 1]]);
  const removed = [];
  some.addEventListener("change", (changes) => removed.push(...changes.removed));
  next("s3", "pa");
  await stream.send("unsubscribed", { sub: "s2", topic: "pa", reason: "BACK_PRESSURE" });
  await fake.until("POST", SUBSCRIPTIONS, 3);
  await stream.snapshot("s3", "pa", [["a", 2]]);
  assert.deepEqual(removed.map(({ topic, reason }) => [topic, reason]), [["pb", "missed"]]);
  assert.deepEqual([...some.rows.values()].map(({ topic, value }) => [topic, value]), [["pa", 2]]);
});

test("a change while the answer is on its way is not lost", async (context) => {
  const { fake, gateway } = await live(context);
  let answer;
  fake.once("POST", SUBSCRIPTIONS, () => new Promise((resolve) => (answer = resolve)));
  const late = gateway.subscribe("or");
  await fake.until("POST", SUBSCRIPTIONS, 2);
  await late.change({ filter: "/a = 1" });
  answer(json({ sub: "s9", topic: "or", options: "" }, 201));
  const [[, , body]] = await fake.until("PATCH", /s9$/);
  assert.deepEqual(body, { filter: "/a = 1" });
});

test("a delta without its record begins the subscription again", async (context) => {
  const { fake, prices, stream } = await live(context);
  await stream.rows("s1", "px", [["z", { v: 1 }]], "", "delta");
  await fake.until("DELETE", /s1$/);
  assert.equal(fake.asked("POST", SUBSCRIPTIONS).length, 2);
  await stream.snapshot("s2", "px", [["z", { v: 1 }]]);
  assert.equal(keys(prices), '["z"]');
});

test("what back-pressure ended is asked for again, and a topic that is removed is not", async (context) => {
  const { fake, prices, stream } = await live(context);
  await stream.send("unsubscribed", { sub: "s1", topic: "px", reason: "BACK_PRESSURE" });
  await fake.until("POST", SUBSCRIPTIONS, 2);
  assert.equal(prices.rows.size, 2);
  await stream.send("unsubscribed", { sub: "s2", topic: "px", reason: "REMOVED" });
  assert.equal(prices.end, "REMOVED");
  assert.equal(prices.rows.size, 0);
  assert.equal(fake.asked("POST", SUBSCRIPTIONS).length, 2);
});

test("a subscription that is not granted after a restart says so until it is", async (context) => {
  const { fake, gateway, prices, stream } = await live(context);
  const heard = [];
  prices.addEventListener("state", ({ detail }) => heard.push([detail.state, detail.code]));
  assert.equal(prices.state, "live");
  fake.once("GET", EVENTS, () => problem(404, "session-unknown"));
  fake.once("POST", SUBSCRIPTIONS, () => problem(404, "topic-unknown"));
  // Long enough to look: what is shown meanwhile is old, though the stream of the page is there.
  fake.once("POST", SUBSCRIPTIONS, () => problem(429, "limit-reached", { "Retry-After": "3600" }));
  stream.end();
  await fake.until("POST", SUBSCRIPTIONS, 3);
  await fake.streams[1].hello();
  assert.deepEqual([gateway.state, prices.state, prices.end], ["live", "lost", ""]);
  assert.equal(prices.reason, "limit-reached (topic px): because");
  assert.deepEqual(heard, [["lost", ""], ["lost", "session-unknown"], ["lost", "topic-unknown"], ["lost", "limit-reached"]]);
  gateway.subscribe("or"); // the others are not held up
  await fake.until("POST", SUBSCRIPTIONS, 4);
});

test("a topic that is made again without its key is an outage, and not the end", async (context) => {
  const { fake, prices, stream } = await live(context);
  fake.once("GET", EVENTS, () => problem(404, "session-unknown"));
  for (const code of ["options-invalid", "filter-invalid"]) fake.once("POST", SUBSCRIPTIONS, () => problem(400, code));
  const reasons = [];
  prices.addEventListener("state", ({ detail }) => reasons.push(detail.reason));
  stream.end();
  await fake.until("POST", SUBSCRIPTIONS, 4);
  // Always with removals: without them the records that were deleted meanwhile would stay.
  assert.deepEqual(fake.asked("POST", SUBSCRIPTIONS).map(([, , body]) => body.options), Array(4).fill("conflation=1s,oof"));
  assert.deepEqual(reasons.slice(-2), ["options-invalid (topic px): because", "filter-invalid (topic px): because"]);
  assert.deepEqual([prices.state, prices.code, prices.end, prices.rows.size], ["lost", "filter-invalid", "", 2]);
  const again = fake.streams.at(-1);
  await again.hello();
  await again.snapshot("s2", "px", [["a", 2]]);
  assert.deepEqual([prices.state, prices.reason, prices.code, keys(prices)], ["live", "", "", '["a"]']);
});

test("a changed wish that begins again and is refused is the end", async (context) => {
  const { fake, prices } = await live(context);
  fake.once("POST", SUBSCRIPTIONS, () => problem(400, "filter-invalid"));
  await prices.change({ deltas: true, filter: "/" });
  await fake.until("POST", SUBSCRIPTIONS, 2);
  assert.deepEqual([prices.state, prices.end], ["closed", "filter-invalid"]);
});

test("a page can end the wait for the next attempt", async (context) => {
  const { fake, gateway, prices, stream } = await live(context);
  fake.once("GET", EVENTS, () => problem(503, "bus-unavailable", { "Retry-After": "3600" }));
  stream.end();
  await fake.until("GET", EVENTS, 2);
  assert.deepEqual([gateway.state, prices.state], ["lost", "lost"]);
  gateway.retry();
  await fake.until("GET", EVENTS, 3);
});

test("a Retry-After counts for the next attempt alone", async (context) => {
  const { fake, gateway, stream } = await live(context);
  fake.once("GET", EVENTS, () => problem(503, "bus-unavailable", { "Retry-After": "3600" }));
  stream.end();
  await fake.until("GET", EVENTS, 2);
  gateway.retry();
  await fake.until("GET", EVENTS, 3);
  fake.streams[1].end();
  await fake.until("GET", EVENTS, 4);
});

test("a subscription is live once its records are complete, and ready is the first time", async (context) => {
  const { fake, gateway } = begun(context);
  const prices = gateway.subscribe("px");
  const some = gateway.subscribe("p*");
  const log = gateway.subscribe("log");
  const order = [];
  for (const each of [prices, some, log]) each.ready.then(() => order.push([each.topic, each.rows.size]));
  fake.once("POST", SUBSCRIPTIONS, () => json({ sub: "s1", topic: "px", options: "" }, 201));
  const topics = [{ topic: "pa", options: "" }, { topic: "pb", options: "", bookmark: "e-4" }, { topic: "pc", options: "bookmark=epoch" }];
  fake.once("POST", SUBSCRIPTIONS, () => json({ sub: "s2", topic: "p*", options: null, topics }, 201));
  fake.once("POST", SUBSCRIPTIONS, () => json({ sub: "s3", topic: "log", options: "", bookmark: "e-4" }, 201));
  await fake.until("POST", SUBSCRIPTIONS, 3);
  await fake.until("GET", EVENTS);
  const [stream] = fake.streams;
  assert.deepEqual(order, []);
  await stream.hello();
  assert.deepEqual(order, [["log", 0]]);
  await stream.send("group_begin", { sub: "s1", topic: "px", rows: 2 });
  await stream.rows("s1", "px", [["a", 1]], "", "snapshot");
  assert.equal(prices.state, "connecting");
  await stream.rows("s1", "px", [["b", 1]], "", "snapshot");
  await stream.send("group_end", { sub: "s1", topic: "px", rows: 2 });
  await stream.snapshot("s2", "pa", [["a", 1]]);
  assert.deepEqual(order, [["log", 0], ["px", 2], ["p*", 1]]);
  assert.deepEqual([prices.state, some.state, log.state], ["live", "live", "live"]);
});

test("a snapshot and a flush are one change each, in however many events they come", async (context) => {
  const HOLD_MS = 500;
  const holds = new Map();
  const { setTimeout: later, clearTimeout: forget } = globalThis;
  context.mock.method(globalThis, "setTimeout", (end, ms) => {
    if (ms !== HOLD_MS) return later(end, ms);
    holds.set(end, end);
    return end;
  });
  context.mock.method(globalThis, "clearTimeout", (timer) => holds.delete(timer) || forget(timer));
  const { fake, prices, stream } = await live(context);
  const heard = [];
  const noted = ({ added, changed, removed }) => heard.push([added, changed, removed].map((rows) => rows.map(({ key }) => key[0]).join("")));
  prices.addEventListener("change", noted);
  const piece = (key, more) => stream.send("message", { sub: "s1", topic: "px", rows: [{ topic: "px", op: "publish", key: [key], value: 2 }], ...(more && { more }) });
  await piece("a", true);
  await piece("c", true);
  assert.deepEqual(heard, []);
  await piece("b");
  await piece("b");
  assert.deepEqual(heard.splice(0), [["c", "ab", ""], ["", "b", ""]]);
  await stream.send("group_begin", { sub: "s1", topic: "px", rows: 2 });
  for (const key of ["a", "d"]) await stream.rows("s1", "px", [[key, 3]], "", "snapshot");
  assert.deepEqual(heard, []);
  await stream.send("group_end", { sub: "s1", topic: "px", rows: 2 });
  assert.deepEqual(heard.splice(0), [["d", "a", "bc"]]);
  // Who reads the records has been told of all of them.
  await piece("e", true);
  assert.equal(prices.get("e").value, 2);
  assert.deepEqual(heard.splice(0), [["e", "", ""]]);
  // The rest may never come: neither from a stream that is lost, nor if none of it is for this reader.
  await piece("f", true);
  stream.end();
  await fake.until("GET", EVENTS, 2);
  assert.deepEqual(heard.splice(0), [["f", "", ""]]);
  await fake.streams[1].send("message", { sub: "s1", topic: "px", rows: [{ topic: "px", op: "publish", key: ["g"], value: 2 }], more: true });
  assert.deepEqual(heard, []);
  const [end, ...others] = holds.values();
  end();
  assert.deepEqual([heard, others], [[["g", "", ""]], []]);
});

test("a goodbye without return ends everything, and one with it does not", async (context) => {
  const { fake, prices, states, stream } = await live(context);
  await stream.write("retry: 0\n\n");
  await stream.send("goodbye", { reason: "SHUTDOWN", reconnect: true });
  stream.end();
  await fake.until("GET", EVENTS, 2);
  await fake.streams[1].hello();
  await fake.streams[1].send("goodbye", { reason: "CLOSED_BY_ADMIN", reconnect: false });
  fake.streams[1].end();
  await settled();
  assert.equal(prices.end, "CLOSED_BY_ADMIN");
  assert.equal(states.at(-1), "closed");
  assert.equal(fake.streams.length, 2);
});

test("a page that goes ends its session, and hears no goodbye for other tabs", async () => {
  const fake = new FakeGateway();
  const heard = [];
  const session = new Session(new Transport("http://gateway:1", { fetch: fake.fetch }), (state) => heard.push(state), () => {});
  const target = { topic: "px", wish: {}, place: null, accepted() {}, entered() {}, take() {}, failed: () => heard.push("failed"), ended: (reason) => heard.push(reason) };
  session.add(target);
  await fake.until("GET", EVENTS);
  const [stream] = fake.streams;
  await stream.hello();
  session.leave();
  if (!stream.isOver) await stream.send("goodbye", { reason: "CLOSED_BY_ADMIN", reconnect: false });
  stream.end();
  await settled();
  assert.equal(fake.asked("DELETE", /sessions\/S1$/).length, 1);
  assert.deepEqual(heard, ["connecting", "live"]);
});

test("a silent stream is lost", async (context) => {
  const { fake, stream } = await live(context);
  await stream.hello([], 20);
  await stream.write(": heartbeat\n\n");
  await fake.until("GET", EVENTS, 2);
  assert.equal(fake.streams[1].lastId, "S1-2~e-2");
});

test("a wait is as long as the gateway asks, and can be cut short", async (context) => {
  const { fake, gateway, stream } = await live(context);
  fake.once("GET", EVENTS, () => problem(503, "bus-unavailable", { "Retry-After": "3600" }));
  const lost = new Promise((resolve) => gateway.addEventListener("state", ({ detail }) => detail.reason.includes("because") && resolve()));
  stream.end();
  await lost;
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(fake.streams.length, 1);
  gateway.close();
});

test("the answer of another server is an outage, except to the first request", async (context) => {
  const page = (status) => () => new Response("<html>default backend - 404", { status });
  const inJson = (status) => () => json({ code: "NotFound", status: "down" }, status);
  const { fake, gateway, states, stream } = await live(context);
  for (const status of [404, 403]) fake.once("GET", EVENTS, page(status));
  for (const other of [page(404), inJson(404), page(200), inJson(200)]) fake.once("POST", /sessions$/, other);
  fake.once("GET", EVENTS, () => problem(404, "session-unknown"));
  stream.end();
  await fake.until("POST", SUBSCRIPTIONS, 2);
  assert.equal(states.includes("closed"), false);
  for (const other of [page(404), inJson(404), inJson(200)]) fake.once("POST", SUBSCRIPTIONS, other);
  await gateway.subscribe("or").granted;
  const other = begun(context);
  other.fake.once("POST", /sessions$/, page(404));
  await assert.rejects(other.gateway.subscribe("px").granted, { name: "Problem", status: 404 });
});

test("a wrong token ends everything, with the problem", async (context) => {
  const { fake, gateway } = begun(context, { token: "secret" });
  fake.once("POST", /sessions$/, () => problem(401, "unauthenticated"));
  await assert.rejects(gateway.subscribe("px").granted, { code: "unauthenticated" });
  assert.equal(fake.headers[0].get("Authorization"), "Bearer secret");
  assert.equal(gateway.state, "closed");
});

test("a token is asked for with each request, and again when it is refused", async (context) => {
  let number = 0;
  const { fake, gateway } = begun(context, { token: async () => `t${(number += 1)}`, ticket: () => "once" });
  fake.once("POST", /sessions$/, () => problem(401, "unauthenticated"));
  await gateway.subscribe("px").granted;
  await fake.until("GET", /events/);
  const tokens = fake.headers.map((headers) => headers.get("Authorization"));
  assert.deepEqual(tokens.slice(0, 2), ["Bearer t1", "Bearer t2"]);
  assert.equal(new Set(tokens).size, tokens.length);
  assert.match(fake.asked("GET", /events/)[0][1], /\?ticket=once$/);
});

test("a hidden page asks for a slower interval, and for its own when it is seen again", async (context) => {
  const timers = [];
  context.mock.method(globalThis, "setTimeout", (end, ms) => timers.push({ end, ms }));
  context.mock.method(globalThis, "clearTimeout", (timer) => timer && delete timers[timer - 1]);
  const second = () => {
    for (const { end } of timers.splice(0).filter(({ ms }) => ms === 1_000)) end();
  };
  const page = Object.assign(new EventTarget(), { visibilityState: "visible" });
  globalThis.document = page;
  globalThis.addEventListener ??= () => {};
  globalThis.removeEventListener ??= () => {};
  const { fake, gateway } = begun(context, { tabs: false });
  context.after(() => delete globalThis.document);
  const wishes = [{ interval: "500ms" }, { interval: "10s" }, { interval: "none" }, { interval: "100ms", hidden: false }, { interval: "auto", hidden: "1m" }];
  await Promise.all(wishes.map((wish) => gateway.subscribe("px", wish).granted));
  const see = (state) => {
    page.visibilityState = state;
    page.dispatchEvent(new Event("visibilitychange"));
  };
  const asked = () => fake.asked("PATCH", /./).map(([, path, body]) => `${path.split("/").at(-1)} ${body.conflation}`);
  see("hidden");
  see("visible");
  second();
  await settled();
  assert.deepEqual(asked(), []);
  see("hidden");
  second();
  await settled();
  assert.deepEqual(asked(), ["s1 5s", "s5 1m"]);
  see("visible");
  await settled();
  assert.deepEqual(asked().slice(2), ["s1 500ms", "s5 auto"]);
});

test("a change replaces options, filter and order, and a refused one changes nothing", async (context) => {
  const { fake, prices } = await live(context);
  await prices.change({ interval: "5s", filter: "/a = 1" });
  fake.once("PATCH", /s1$/, () => problem(400, "options-invalid"));
  await assert.rejects(prices.change({ interval: "1 s" }), { code: "options-invalid" });
  await prices.change({ filter: undefined });
  assert.deepEqual(fake.asked("PATCH", /s1$/).map((each) => each[2]), [
    { options: "conflation=5s,oof,replace", filter: "/a = 1" },
    { options: "conflation=1 s,oof,replace" },
    { filter: null },
  ]);
  assert.equal(prices.wish.interval, "5s");
});

test("a change goes on without removals where the gateway has none", async (context) => {
  const { fake, gateway } = begun(context);
  fake.once("POST", SUBSCRIPTIONS, () => problem(400, "options-invalid"));
  const sums = gateway.subscribe("px", { interval: "1s", options: "conflation_key=[/g]" });
  await sums.granted;
  fake.once("PATCH", /s1$/, () => problem(400, "options-invalid"));
  await sums.change({ interval: "2s" });
  assert.deepEqual(fake.asked("PATCH", /s1$/).map(([, , body]) => body), [
    { options: "conflation=2s,conflation_key=[/g],oof,replace" },
    { options: "conflation=2s,conflation_key=[/g],replace" },
  ]);
});

test("a change leaves out the bookmark with which a subscription began", async (context) => {
  const { fake, gateway } = begun(context);
  const log = gateway.subscribe("log", { interval: "none", bookmark: "epoch" });
  await log.granted;
  await log.change({ interval: "1s" });
  assert.deepEqual(fake.asked("PATCH", /s1$/).map(([, , body]) => body), [{ options: "conflation=1s,replace" }]);
});

test("a change of removals alone is one", async (context) => {
  const { fake, prices, stream } = await live(context);
  await prices.change({ removals: false });
  assert.deepEqual(fake.asked("PATCH", /s1$/).map(([, , body]) => body), [{ options: "conflation=1s,replace" }]);
  // Only a snapshot says what was removed meanwhile.
  await prices.change({ removals: true });
  await fake.until("POST", SUBSCRIPTIONS, 2);
  await stream.snapshot("s2", "px", [["a", 1]]);
  assert.equal(keys(prices), '["a"]');
});

test("a closed subscription ends at the gateway, also if its name comes later", async (context) => {
  const { fake, gateway, prices } = await live(context);
  await prices.close();
  assert.equal(fake.asked("DELETE", /subscriptions\/s1$/).length, 1);
  const late = gateway.subscribe("or");
  const closed = late.close();
  await closed;
  await fake.until("DELETE", /subscriptions\/s2$/);
  await assert.rejects(late.granted);
  await gateway.close();
  assert.equal(fake.asked("DELETE", /sessions\/S1$/).length, 1);
});

test("readers get changes, messages and the end", async (context) => {
  const { prices, stream } = await live(context);
  const changes = prices[Symbol.asyncIterator]();
  const messages = prices.messages();
  assert.deepEqual((await changes.next()).value.added.map(({ key }) => key), [["a"], ["b"]]);
  await stream.rows("s1", "px", [["a", 2], ["a", 3]]);
  assert.deepEqual((await changes.next()).value.changed.map(({ value }) => value), [3]);
  assert.equal((await messages.next()).value.value, 2);
  assert.equal((await messages.next()).value.value, 3);
  const last = changes.next();
  await prices.close();
  assert.deepEqual(await last, { value: undefined, done: true });
  assert.equal((await messages.next()).done, true);
});

test("notices arrive by their names", async (context) => {
  const { gateway, prices, stream } = await live(context);
  const heard = [];
  for (const name of ["conflation", "late"]) prices.addEventListener(name, ({ detail }) => heard.push(detail));
  gateway.addEventListener("status", ({ detail }) => heard.push(detail));
  await stream.send("conflation", { sub: "s1", from: "1s", to: "2s" });
  await stream.send("late", { sub: "s1", age_ms: 7 });
  await stream.send("status", { source: "bus", stale_since: 5 });
  assert.deepEqual(heard.map((each) => each.to ?? each.age_ms ?? each.source), ["2s", 7, "bus"]);
});

test("only a subscription without snapshots has a place to go on from", () => {
  const story = (...events) => events.reduce((place, [name, fields, id = ""]) => placeAfter(place, name, fields, id), "");
  const subscribed = ["subscribed", { bookmark: "e-1" }];
  const message = ["message", {}, "S-2~e-5"];
  assert.equal(story(subscribed), "e-1");
  assert.equal(story(subscribed, message, ["message", {}, "S-3"]), "e-5");
  assert.equal(story(["subscribed", { bookmark: null }], message), "e-5");
  const begin = ["group_begin", {}];
  assert.equal(story(["subscribed", { bookmark: null }], begin, message, subscribed), null);
  assert.equal(story(subscribed, begin, ["group_end", {}, "S-4~e-9"]), "e-9");
});

test("a gateway that hangs is left for the next one", async (context) => {
  context.mock.method(Math, "random", () => 0);
  const fake = new FakeGateway();
  const hosts = [];
  const fetch = (url, init) => {
    if (EVENTS.test(new URL(url).pathname)) hosts.push(new URL(url).host);
    return fake.fetch(url, init);
  };
  const gateway = connect(["http://a:1", "http://b:1"], { fetch });
  context.after(() => gateway.close());
  gateway.subscribe("px");
  await fake.until("GET", EVENTS);
  await fake.streams[0].hello([], 20); // and then nothing, not even a heartbeat
  await fake.until("GET", EVENTS, 2);
  assert.deepEqual(hosts, ["a:1", "b:1"]);
});

test("what only reads is asked at the next address in the same call", async () => {
  const hosts = [];
  const fetch = async (url, { method }) => {
    hosts.push(`${method} ${new URL(url).host}`);
    if (new URL(url).host === "a:1") throw new TypeError("fetch failed");
    if (new URL(url).host === "out:1") return new Response("", { status: 503 });
    return json({});
  };
  for (const first of ["http://a:1", "http://out:1"]) {
    const transport = new Transport([first, "http://b:1"], { fetch });
    await transport.ask("GET", "/v1/topics");
    const changing = new Transport([first, "http://b:1"], { fetch }).ask("POST", "/v1/topics/px/messages", { json: {} });
    await assert.rejects(changing);
  }
  assert.deepEqual(hosts, ["GET a:1", "GET b:1", "POST a:1", "GET out:1", "GET b:1", "POST out:1"]);
});

test("an address that takes a request and does not answer is left", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const hosts = [];
  const fetch = (url, { signal }) => {
    hosts.push(new URL(url).host);
    return new Promise((resolve, reject) => {
      if (new URL(url).host === "b:1") resolve(json({}));
      signal.addEventListener("abort", () => reject(new Error("aborted")));
    });
  };
  const transport = new Transport(["http://a:1", "http://b:1"], { fetch });
  const asked = transport.ask("GET", "/v1/topics");
  context.mock.timers.tick(60_000);
  await assert.rejects(asked);
  await transport.ask("GET", "/v1/topics");
  assert.deepEqual(hosts, ["a:1", "b:1"]);
});

const LOST = { sub: "s1", topic: "log", mode: "snapshot", gap_messages: 7, gap_ms: null, not_found: "now", closed: null };

test("messages that are missing for good are said", async (context) => {
  const said = [];
  const { fake, gateway } = begun(context, { trouble: (sentence) => said.push(sentence) });
  const log = gateway.subscribe("log", { interval: "none" });
  await log.granted;
  await fake.until("GET", EVENTS);
  const [stream] = fake.streams;
  await stream.hello();
  await stream.send("resumed", { ...LOST, not_found: null });
  await stream.send("resumed", LOST);
  await stream.send("resumed", { ...LOST, gap_messages: null, not_found: "epoch" });
  assert.deepEqual(said, [
    "log: up to 7 messages are missing for good; a snapshot follows",
    "log: messages are missing for good; all that is kept follows",
  ]);
});

test("by default they are a warning of the console", async (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const { fake, gateway } = begun(context);
  await gateway.subscribe("log").granted;
  await fake.until("GET", EVENTS);
  await fake.streams[0].hello();
  await fake.streams[0].send("resumed", LOST);
  assert.match(warn.mock.calls[0].arguments[0], /missing for good/);
});

test("a loop over messages that must be found throws where they are gone", async (context) => {
  const { fake, gateway } = begun(context);
  const kept = new Map();
  const storage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, text) => kept.set(name, text) };
  const isExpired = (error) => error.code === "bookmark-expired" && error.about === "topic log";
  const thrown = assert.rejects(gateway.follow("log", { place: "reader", storage }).next(), isExpired);
  await fake.until("GET", EVENTS);
  await fake.streams[0].hello();
  await fake.streams[0].send("unsubscribed", { sub: "s1", topic: "log", reason: "BOOKMARK_EXPIRED" });
  await thrown;
});

test("a pattern that must find its messages ends where those of one topic are gone", async (context) => {
  const { fake, gateway } = begun(context);
  const logs = gateway.subscribe("log.*", { bookmark: "epoch", options: "bookmark_not_found=fail" });
  await logs.granted;
  await fake.until("GET", EVENTS);
  await fake.streams[0].hello();
  await fake.streams[0].send("unsubscribed", { sub: "s1", topic: "log.a", reason: "BOOKMARK_EXPIRED" });
  assert.deepEqual([logs.state, logs.code], ["closed", "bookmark-expired"]);
  assert.equal((await fake.until("DELETE", /\/subscriptions\/s1$/)).length, 1);
});

test("a refusal on the stream is the reason of the loss", async (context) => {
  const { prices, stream } = await live(context);
  await stream.send("refused", { title: "A limit is reached", status: 429, code: "limit-reached" });
  stream.end();
  await settled();
  assert.deepEqual([prices.state, prices.code, prices.reason], ["lost", "limit-reached", "A limit is reached"]);
});

test("a name that means nothing is refused with it", async (context) => {
  const { gateway, prices } = await live(context);
  assert.throws(() => gateway.subscribe("px", { intervall: "1s" }), /TypeError: there is no wish intervall; known are interval,/);
  assert.throws(() => connect("", { tokens: "x" }), /no option of connect tokens/);
  await assert.rejects(prices.change({ order_by: "/a" }), /no wish order_by/);
  assert.throws(() => gateway.publish("px", {}, { deltas: true }), /no option of publish deltas/);
  assert.throws(() => gateway.sow("px", { order_by: "/a" }), /no part of a query order_by/);
});
