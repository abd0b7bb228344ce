import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { load } from "./console.mjs";

const { Connection } = await load("kit/connection.js");
const { age, clientOf, decimalsOf, isAmountName, shown, writerOf } = await load("kit/formats.js");
const { CHECKS, Health } = await load("kit/health.js");
const { Metrics } = await load("kit/metrics.js");
const { actionOf } = await load("kit/keys.js");
const { treeOf } = await load("kit/tree.js");
const { cutMiddle, widthsOf } = await load("kit/widths.js");

let now = 1_000_000;

function stateful(steps) {
  const connection = new Connection(() => now);
  const seen = [];
  connection.addEventListener("state", () => seen.push(connection.state));
  for (const step of steps) step(connection);
  return { connection, seen };
}

test("a loss keeps its time and its reason however often the client tries again", () => {
  now = 1_000_000;
  const { connection, seen } = stateful([(it) => it.takeStream("live", ""), (it) => it.takeStream("lost", "the stream ended")]);
  for (let attempt = 0; attempt < 3; attempt += 1) {
    now += 5_000;
    connection.takeStream("connecting", "");
    connection.takeStream("lost", "no answer");
  }
  assert.deepEqual([connection.state, connection.since, connection.reason], ["lost", 1_000_000, "the stream ended"]);
  assert.deepEqual(seen, ["live", "lost"]);
  connection.takeStream("live", "");
  assert.deepEqual([connection.state, connection.since], ["live", 1_015_000]);
});

test("a gateway that answers requests is not live while the stream is lost, nor the other way round", () => {
  const { connection } = stateful([(it) => it.takeStream("live", ""), (it) => it.takeStream("lost", "x")]);
  connection.takeAnswer(now, null);
  assert.equal(connection.state, "lost");
  connection.takeStream("live", "");
  connection.takeSilence(now, "timed out");
  assert.equal(connection.state, "lost");
  connection.takeAnswer(now, null);
  assert.equal(connection.state, "live");
});

test("a silent gateway is lost from the request that had no answer", () => {
  now = 1_000_000;
  const { connection } = stateful([(it) => it.takeAnswer(999_990, null)]);
  now += 5_000;
  connection.takeSilence(1_000_100, "no answer");
  assert.deepEqual([connection.state, connection.since], ["lost", 1_000_100]);
});

test("a screen without a stream is live by answers, and unknown before the first", () => {
  const { connection, seen } = stateful([(it) => it.takeStream("connecting", "")]);
  assert.equal(connection.state, "connecting");
  connection.takeAnswer(now, null);
  assert.deepEqual(seen, ["live"]);
});

test("a stream that is over is neither live nor lost", () => {
  const { connection } = stateful([(it) => it.takeStream("live", ""), (it) => it.takeStream("closed", "CLOSED_BY_ADMIN")]);
  connection.takeAnswer(now, null);
  assert.deepEqual([connection.state, connection.reason], ["closed", "CLOSED_BY_ADMIN"]);
});

test("ages are by the gateway's clock where the browser's is wrong", () => {
  now = 1_000_000_000;
  const { connection } = stateful([]);
  connection.takeAnswer(1_000_000_000, new Date(1_000_060_000).toUTCString());
  assert.equal(connection.ageOf(1_000_060_000 - 1_500), 2_000);
  connection.takeAnswer(1_000_000_000, new Date(1_000_001_000).toUTCString());
  assert.equal(connection.ageOf(1_000_000_000 - 1_500), 1_500);
  assert.equal(connection.ageOf(1_000_000_900), 0);
});

test("a number is shown as it is, however small, and without the noise of binary fractions", () => {
  for (const [value, digits, text] of [
    [1e-7, undefined, "0.0000001"], [1e-7, 4, "1e-7"], [1.5e-9, 8, "1.5e-9"], [0.12345, 2, "0.12345"], [1.08765, 5, "1.08765"], [151, 2, "151.00"],
    [0.1 + 0.2, undefined, "0.3"], [25151860.25, 2, "25,151,860.25"], [101.33333333333333, 8, "101.33333333"], [1e300, 2, "1e+300"], [0, 2, "0.00"],
    [-1e-7, 2, "-1e-7"], [12345678901234567890n, undefined, "12,345,678,901,234,567,890"],
  ]) {
    assert.equal(shown(value, "auto", digits), text);
  }
  assert.deepEqual([1, 1.5, 1e-7, 1.5e-7, 1e21, 0.1 + 0.2].map(decimalsOf), [0, 1, 7, 8, 0, 1]);
  assert.deepEqual([1e-7, 2].map(writerOf("px", [1e-7, 2])), ["0.0000001", "2.0000000"]);
});

test("an age is in whole seconds, minutes, hours and days", () => {
  const of = [0, 999, 59_999, 60_000, 3_599_000, 3_600_000, 90_000_000, -5, NaN].map(age);
  assert.deepEqual(of, ["0 s", "0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 1 h", "0 s", "–"]);
});

test("amounts are known by their names", () => {
  for (const name of ["/size", "/bidSize", "qty", "lastQuantity", "volume", "seq"]) assert.ok(isAmountName(name), name);
  for (const name of ["/price", "/bid", "ask", "yield"]) assert.ok(!isAmountName(name), name);
});

test("columns are as wide as their numbers, and texts take what is left", () => {
  const number = (px) => ({ px, isNumber: true });
  assert.deepEqual(widthsOf([{ px: 200, isPinned: true }, number(300), { px: 900 }], 1_200), [200, 300, 700]);
  assert.deepEqual(widthsOf([{ px: 200, isPinned: true }, number(300), { px: 900 }], 600), [200, 300, 320]);
  assert.deepEqual(widthsOf([{ px: 500, isPinned: true }, number(90)], 380), [290, 90]);
  assert.deepEqual(widthsOf([{ px: 500, isPinned: true }, number(400)], 380), [209, 400]);
  assert.deepEqual(widthsOf([{ px: 500, width: 80 }, number(50)], 1_000), [80, 50]);
});

test("a key that does not fit keeps the end by which it differs", () => {
  const keys = ["desk-europe-rates-000001", "desk-europe-rates-000002"].map((key) => cutMiddle(key, 12));
  assert.notEqual(keys[0], keys[1]);
  assert.ok(keys.every((key) => [...key].length === 12 && key.includes("…")));
  assert.equal(cutMiddle("short", 12), "short");
  assert.equal(cutMiddle("😀😀😀😀", 2), "…😀");
});

test("topics with dots are a tree, whose branches add up", () => {
  const leaf = (topic, rate, last) => ({ topic, rate, keys: 2, last_ms: last, age_ms: last && 100 - last });
  const leaves = [leaf("fx.eur.fwd", 1, 10), leaf("fx.eur.spot", NaN, null), leaf("fx.usd", 3, 20), leaf("orders", 5, 1), leaf("a.b.c", 1, 1)];
  const text = (isOpen) => treeOf(leaves, isOpen).map(({ leaf: one, label, depth, size, rate, keys, last_ms: last }) => (one ? `${depth} ${label}` : `${depth} ${label} ${size} ${rate} ${keys} ${last}`));
  assert.deepEqual(text(() => true), ["0 a.b.c", "0 fx. 3 4 6 20", "1 eur. 2 1 4 10", "2 fwd", "2 spot", "1 usd", "0 orders"]);
  assert.deepEqual(text((branch) => branch !== "fx."), ["0 a.b.c", "0 fx. 3 4 6 20", "0 orders"]);
  const chain = treeOf([leaf("rates.swaps.eur", 1, 1), leaf("rates.swaps.usd", 1, 1)], () => true);
  assert.deepEqual(chain.map(({ label }) => label), ["rates.swaps.", "eur", "usd"]);
  assert.deepEqual(treeOf([leaf("px", 1, 1), leaf("px.eu", 1, 1), leaf("px.us", 1, 1)], () => true).map(({ label }) => label), ["px", "px.", "eu", "us"]);
});

test("single keys act on the page, and not where one types", () => {
  const press = (key, names, given = {}) => actionOf({ key, target: { matches: (query) => names.some((name) => query.includes(name)), closest: (query) => names.find((name) => query.includes(name)) }, ...given }, false);
  assert.deepEqual(press("/", []), { name: "find" });
  assert.deepEqual(press("3", []), { name: "screen", at: 2 });
  assert.deepEqual(press("?", []), { name: "help" });
  assert.deepEqual(press("ArrowDown", []), { name: "rows" });
  assert.equal(press("ArrowDown", ['[role="grid"]']), null);
  for (const key of ["/", "3", "?", "ArrowDown"]) {
    assert.equal(press(key, ["textarea"]), null, key);
    assert.equal(press(key, [], { ctrlKey: true }), null, key);
    assert.equal(actionOf({ key, target: {} }, true), null, key);
  }
  assert.deepEqual(press("ArrowDown", ['input[type="search"]']), { name: "rows" });
});

test("browsers have short names, and programs the name that they give themselves", () => {
  const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36";
  assert.deepEqual([chrome, `${chrome} Edg/126.0`, "python-httpx/1", null].map(clientOf), ["Chrome 126", "Edge 126", "python-httpx/1", ""]);
});

const css = readFileSync(new URL("../../app/static/console/console.css", import.meta.url), "utf8");

/** The luminance of a custom property in the light and in the dark theme (WCAG 2.2). */
function luminances(name) {
  const [, ...pair] = new RegExp(`--${name}: light-dark\\((#\\w{6}), (#\\w{6})\\)`).exec(css);
  return pair.map((hex) => {
    const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  });
}

function contrasts(one, other) {
  const [ones, others] = [luminances(one), luminances(other)];
  return ones.map((luminance, at) => (Math.max(luminance, others[at]) + 0.05) / (Math.min(luminance, others[at]) + 0.05));
}

test("a change flashes as loudly in light as in dark, up as down", () => {
  const all = ["up-flash", "down-flash", "new-flash"].flatMap((name) => contrasts(name, "paper"));
  assert.ok(all.every((contrast) => Math.abs(contrast - 1.55) < 0.02), String(all));
});

test("what is old can be read on every ground", () => {
  for (const ground of ["paper", "raised", "accent-soft", "ground"]) {
    for (const contrast of contrasts("faint", ground)) assert.ok(contrast >= 4.5, `${ground} ${contrast}`);
  }
});

function metricsOf(given) {
  const values = { tidegate_ready: 1, tidegate_store_queued: 0, tidegate_connections: 5, tidegate_connections_max: 100, ...given };
  return new Metrics(Object.entries(values).map(([name, value]) => `${name} ${value}`).join("\n"));
}

function stateOf(findings, alert) {
  const found = findings.find((each) => each.alert === alert);
  return [found.state, found.value];
}

test("health is of now and of the last minutes, with the worst first", () => {
  const health = new Health();
  const calm = health.take(metricsOf({ tidegate_store_failures_total: 7, tidegate_checkpoint_timestamp_seconds: 500 }), 600_000);
  assert.deepEqual([stateOf(calm, "TidegateNotReady"), stateOf(calm, "TidegateStoreFailing")], [["good", "yes"], ["good", "0"]]);
  assert.deepEqual(stateOf(calm, "TidegateCheckpointOld"), ["good", "2 min ago"]);
  assert.deepEqual(stateOf(calm, "TidegateLoopHeld"), ["unknown", "–"]);
  assert.ok(calm.every(({ state }) => state === "good" || state === "unknown"));
  const ill = health.take(metricsOf({ tidegate_store_failures_total: 9, tidegate_ready: 0, tidegate_connections: 95, tidegate_store_queued: 1000 }), 600_000);
  assert.deepEqual(ill.slice(0, 3).map(({ alert, state }) => [alert, state]), [["TidegateNotReady", "bad"], ["TidegateStoreFailing", "bad"], ["TidegateConnectionsFew", "warn"]]);
  assert.deepEqual(stateOf(ill, "TidegateStoreFailing"), ["bad", "2"]);
  assert.deepEqual(stateOf(ill, "TidegateStoreQueue"), ["good", "1,000"]);
});

test("what all workers count of the same messages is counted once", () => {
  const page = (name) => [1, 2].flatMap((worker) => ["a", "b"].map((topic) => `tidegate_topic_${name}{worker="${worker}",topic="${topic}"} ${10 * worker}`));
  const metrics = new Metrics(["messages_in_total", "delivered_total"].flatMap(page).join("\n"));
  assert.deepEqual(metrics.topics, ["a", "b"]);
  assert.deepEqual([metrics.sum("tidegate_topic_messages_in_total"), metrics.sum("tidegate_topic_messages_in_total", { topic: "a" })], [40, 20]);
  assert.deepEqual([metrics.sum("tidegate_topic_delivered_total"), metrics.sum("tidegate_topic_delivered_total", { topic: "a" })], [60, 30]);
});

test("a quantile is of the last minutes, and above the last bound is beyond any limit", () => {
  const buckets = (fast, slow, all) => ({ 'tidegate_event_loop_lag_seconds_bucket{le="0.1"}': fast, 'tidegate_event_loop_lag_seconds_bucket{le="0.5"}': slow, 'tidegate_event_loop_lag_seconds_bucket{le="+Inf"}': all });
  const health = new Health();
  health.take(metricsOf(buckets(0, 0, 1_000)), 0);
  assert.equal(stateOf(health.take(metricsOf(buckets(100, 100, 1_100)), 0), "TidegateLoopHeld")[0], "good");
  assert.deepEqual(stateOf(health.take(metricsOf(buckets(100, 110, 1_110)), 0), "TidegateLoopHeld"), ["warn", "≤ 500 ms"]);
  assert.equal(stateOf(health.take(metricsOf(buckets(0, 0, 50)), 0), "TidegateLoopHeld")[0], "warn");
});

test("the limits are those of the alerts", () => {
  const text = readFileSync(new URL("../../deploy/alerts.yml", import.meta.url), "utf8").split("- name: tidegate-pipeline")[0];
  const alerts = text.split("- alert: ").slice(1).map((alert) => ({
    alert: alert.split("\n")[0], severity: /severity: (\w+)/.exec(alert)[1], limit: Number(/(?:>|==|!=) ([\d.]+)\n/.exec(alert)[1]),
  }));
  // A page cannot ask whether nothing answers, and has a banner for it; the other is for information only.
  const watched = alerts.filter(({ alert }) => !["TidegateDown", "TidegateSnapshotsInstead"].includes(alert));
  const byName = (one, other) => (one.alert < other.alert ? -1 : 1);
  assert.deepEqual(CHECKS.map(({ alert, severity, limit }) => ({ alert, severity, limit })).sort(byName), watched.sort(byName));
});
