/**
 * Charts of values: a key's last hour, the spread of two fields, and a map of all keys.
 *
 * @module
 */

import { asserted, card, choice, field, h } from "../kit/dom.js";
import { age, clock, shown, things } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { colourOf, Plot } from "../kit/plot.js";
import { cutMiddle } from "../kit/widths.js";
import { filterOf, openDetail } from "./detail.js";
import { isObject } from "/client/json.js";

/** @typedef {import("../kit/link.js").Link} Link */
/** @typedef {import("/client/replica.js").Row} Row */

const HOUR_MS = 3_600_000;
const SPANS = /** @type {[string, string][]} */ ([["300000", "5 minutes"], ["900000", "15 minutes"], ["3600000", "hour"], ["14400000", "4 hours"]]);
const POINTS_MAX = 20_000; // more points than pixels are not seen
const DRAW_MS = 500;
const TILES_MAX = 400; // a map is read at a glance
const TILE_CHARACTERS = 10; // of a key, as wide as a tile
const SAMPLE_ROWS = 200; // rows that are looked at for their fields
const INTERVAL = "1s";
const FULL_PERCENT = 1; // the change at which a colour is strongest

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const topic = h("input", { value: query.get("topic") ?? "", list: "topics", spellcheck: "false", autocomplete: "off" });
  const key = h("input", { value: query.get("key") ?? "", list: "keys", spellcheck: "false", autocomplete: "off" });
  const one = choice([], query.get("field") ?? "");
  const other = choice([["", "none"]], query.get("minus") ?? "");
  const past = choice(SPANS, query.get("span") ?? String(HOUR_MS));
  const [offered, keys] = [h("datalist", { id: "topics" }), h("datalist", { id: "keys" })];
  const status = h("p", { class: "caption", role: "status" });
  const charts = h("div", { class: "stack" });
  const heat = h("div", { class: "heat" });
  const legend = h("small", {}, "");
  /** @type {import("/client.js").Subscription | null} */
  let records = null;
  /** @type {Map<string, number>} The value of each key when the map began. */
  const begun = new Map();
  let stopHistory = () => {};
  let isLeft = false;

  /** Say why there is no chart, in its place. */
  const tell = (/** @type {string} */ why) => charts.replaceChildren(h("p", { class: "card hint" }, why));
  const keep = () => remember({ topic: topic.value, key: key.value, field: one.value, minus: other.value, span: past.value });
  const follow = () => {
    void records?.close();
    stopHistory();
    begun.clear();
    charts.replaceChildren();
    heat.replaceChildren();
    one.replaceChildren();
    status.replaceChildren();
    if (!topic.value) return;
    tell("Reading…");
    const subscription = link.gateway.subscribe(topic.value, { interval: INTERVAL });
    records = subscription;
    const isStill = () => subscription === records && subscription.rows.size === 0;
    subscription.ready.then(() => isStill() && tell(`${subscription.topic} has no records yet; a chart begins with the first.`), (error) => isStill() && tell(reasonOf(error)));
    subscription.addEventListener("change", ({ added }) => {
      if (added.length > 0) offer(subscription);
      drawHeat();
    });
    keep();
  };
  /** @param {import("/client.js").Subscription} subscription */
  const offer = (subscription) => {
    const rows = [...subscription.rows.values()];
    keys.replaceChildren(...rows.slice(0, 1_000).map((row) => h("option", { value: nameOf(row) })));
    if (one.options.length > 0) return;
    const named = rows.slice(0, SAMPLE_ROWS).flatMap(({ value }) => Object.entries(value ?? {}).filter(([, each]) => typeof each === "number"));
    const names = [...new Set(named.map(([name]) => name))];
    if (names.length === 0) {
      tell(`The records of ${subscription.topic} have no numbers, so there is nothing to draw.`);
      return;
    }
    const wished = { one: query.get("field"), other: query.get("minus") };
    one.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    one.value = names.find((name) => name === wished.one) ?? names.find((name) => name === "price") ?? names[0] ?? "";
    other.replaceChildren(...["", ...names].map((name) => h("option", { value: name }, name || "none")));
    other.value = names.find((name) => name === wished.other) ?? "";
    if (!rows.some((row) => nameOf(row) === key.value)) key.value = nameOf(rows[0]);
    void draw();
  };

  /** Draw the last hour of the chosen key, and go on. */
  async function draw() {
    stopHistory();
    charts.replaceChildren();
    keep();
    const row = [...(records?.rows.values() ?? [])].find((each) => nameOf(each) === key.value);
    if (!row && key.value) tell(`${topic.value} has no record with the key ${key.value}.`);
    if (!row || !one.value) return;
    const definition = await link.gateway.topic(row.topic);
    if (isLeft) return;
    stopHistory();
    stopHistory = history(row, filterOf(definition.key, row.key ?? []), definition.journal.first_ms);
  }

  /**
   * @param {Row} row
   * @param {string} filter
   * @param {number | null} journalMs When the oldest message of the journal was published.
   */
  function history(row, filter, journalMs) {
    const fields = [one.value, ...(other.value ? [other.value] : [])];
    const values = new Plot({ label: `${fields.join(" and ")} of ${nameOf(row)}`, height: 300, fromZero: false, text: (value) => shown(value),
      lines: fields.map((label, at) => ({ label, colour: at === 0 ? "--accent" : "--warn" })) });
    const spread = other.value ? new Plot({ label: "Spread", height: 160, fromZero: false, text: (value) => shown(Math.round(1e6 * value) / 1e6), lines: [{ label: `${one.value} − ${other.value}`, colour: "--accent", isFilled: true }] }) : null;
    charts.replaceChildren(card(`${nameOf(row)}: ${fields.join(", ")}`, values.element), ...(spread ? [card(`Spread: ${one.value} − ${other.value}`, spread.element)] : []));
    /** @type {(number | null)[][]} */
    const columns = [[], ...fields.map(() => [])];
    let [isNew, surplusDropped] = [false, false];
    const beginMs = Date.now() - Number(past.value);
    const from = new Date(beginMs).toISOString();
    // Fewer minutes than were asked for look like a quiet market if nobody says why.
    const isShort = journalMs !== null && journalMs > beginMs;
    const limit = isShort ? `; the journal begins at ${clock(journalMs).slice(0, 8)} and has nothing older` : "";
    // The gateway filters its journal, or its archive, and goes on live where that ends.
    const subscription = link.gateway.subscribe(row.topic, { interval: "none", filter, command: "subscribe", removals: false, bookmark: from, options: "bookmark_not_found=epoch,timestamp" });
    subscription.granted.catch((error) => (status.textContent = reasonOf(error)));
    subscription.addEventListener("rows", ({ rows }) => {
      for (const { value, timestamp } of rows) {
        columns[0].push((timestamp ?? Date.now()) / 1_000);
        fields.forEach((name, at) => columns[at + 1].push(typeof value?.[name] === "number" ? value[name] : null));
      }
      const surplus = columns[0].length - POINTS_MAX;
      surplusDropped ||= surplus > 0;
      if (surplus > 0) for (const column of columns) column.splice(0, surplus);
      isNew = true;
    });
    const timer = setInterval(() => {
      if (!isNew) return;
      isNew = false;
      values.draw(columns);
      spread?.draw([columns[0], columns[1].map((value, at) => { const less = columns[2][at]; return value === null || less === null ? null : value - less; })]);
      const [first, last] = [columns[0][0] ?? 0, columns[0].at(-1) ?? 0];
      const over = `${clock(1_000 * first).slice(0, 8)} to ${clock(1_000 * last).slice(0, 8)} (${age(1_000 * (last - first))})`;
      status.replaceChildren(`${things(columns[0].length, "message")} of ${nameOf(row)} from ${over}${surplusDropped ? `, the newest ${POINTS_MAX}` : ""}${limit} · `, ...asserted("live", "no longer live"));
    }, DRAW_MS);
    return () => {
      clearInterval(timer);
      void subscription.close();
      values.close();
      spread?.close();
    };
  }

  /** @type {Map<string, HTMLElement>} */
  const tiles = new Map();
  function drawHeat() {
    const name = one.value;
    if (!records || !name) return;
    const rows = [...records.rows.values()].slice(0, TILES_MAX);
    for (const [id, tile] of tiles) if (!records.rows.has(id)) tile.remove();
    const [good, bad] = [colourOf("--good"), colourOf("--bad")];
    for (const row of rows) {
      const value = row.value?.[name];
      if (typeof value !== "number") continue;
      const first = begun.get(row.id) ?? value;
      begun.set(row.id, first);
      const change = first === 0 ? 0 : (100 * (value - first)) / Math.abs(first);
      let tile = tiles.get(row.id);
      if (!tile) {
        tile = h("button", { onclick: () => openDetail(link, records?.rows.get(row.id) ?? row, { interval: INTERVAL }) }, h("b", {}), h("span", {}));
        tiles.set(row.id, tile);
      }
      if (!tile.isConnected) heat.append(tile);
      // Keys of one kind begin alike.
      tile.children[0].textContent = cutMiddle(nameOf(row), TILE_CHARACTERS);
      tile.title = nameOf(row);
      tile.children[1].textContent = `${change >= 0 ? "+" : "−"}${Math.abs(change).toFixed(2)} %`;
      const share = Math.round(45 * Math.min(1, Math.abs(change) / FULL_PERCENT));
      tile.style.backgroundColor = `color-mix(in srgb, ${change >= 0 ? good : bad} ${share}%, transparent)`;
    }
    const all = records.rows.size;
    legend.textContent = `Change of ${name} since this screen was opened; full color at ${FULL_PERCENT} %.${all > TILES_MAX ? ` The first ${TILES_MAX} of ${all} keys.` : ""}`;
  }

  topic.addEventListener("change", follow);
  one.addEventListener("change", () => {
    begun.clear();
    drawHeat();
  });
  for (const input of [key, one, other, past]) input.addEventListener("change", () => void draw());
  element.append(
    offered, keys,
    h("div", { class: "toolbar" }, field("Topic", topic), field("Key", key), field("Field", one), field("Minus", other), field("The last", past)),
    status, charts, card("All keys", legend, heat),
  );
  void link.gateway.topics().catch(() => []).then((topics) => {
    const keyed = topics.filter((each) => isObject(each) && each.key?.length > 0);
    offered.append(...keyed.map((each) => h("option", { value: each.topic })));
    if (!topic.value) topic.value = keyed.find((each) => each.topic === "market")?.topic ?? keyed[0]?.topic ?? "";
    if (isLeft) return;
    follow();
    if (!topic.value) tell(topics.length > 0 ? "No topic that you may read has a key, and a chart is of one key." : "There is no topic yet. Make one under Topics, and publish to it.");
  });
  return () => {
    isLeft = true;
    void records?.close();
    stopHistory();
  };
}

/** @param {Row} row */
function nameOf(row) {
  return (row.key ?? []).map((part) => shown(part, "text")).join(" · ");
}
