/**
 * Publishing by hand: messages, deltas, and removals.
 *
 * @module
 */

import { bar, card, choice, confirmed, field, h } from "../kit/dom.js";
import { clock, pretty, things } from "../kit/formats.js";
import { reasonOf } from "../kit/link.js";
import { topicPath } from "/client/transport.js";

const LINES_MAX = 200; // of what was done

/** @type {import("../main.js").Screen} */
export function show({ element, link, query, remember }) {
  const offered = h("datalist", { id: "topics" });
  const topic = h("input", { value: query.get("topic") ?? "", list: "topics", spellcheck: "false", required: true, autocomplete: "off" });
  topic.addEventListener("change", () => remember({ topic: topic.value }));
  const text = h("textarea", { rows: 9, spellcheck: "false", required: true, placeholder: '{"symbol": "IBM", "price": 151.1}\n{"symbol": "GE", "price": 12.5}' });
  const delta = h("input", { type: "checkbox" });
  const never = h("input", { type: "checkbox" });
  const ack = choice([["", "as configured"], "processed", "persisted"], "");
  const filter = h("input", { placeholder: "/price < 10", spellcheck: "false", required: true, autocomplete: "off" });
  const done = h("pre", { class: "code", tabindex: 0, role: "log", "aria-label": "What was done" });
  let lines = 0;
  const say = (/** @type {string} */ line) => {
    lines += 1;
    done.prepend(`${clock(Date.now())}  ${line}\n`);
    if (lines > LINES_MAX) done.lastChild?.remove();
  };
  const act = async (/** @type {() => Promise<void>} */ change) => {
    try {
      await change();
    } catch (error) {
      say(`refused: ${reasonOf(error)}`);
    }
  };
  const publish = (/** @type {Event} */ event) => {
    event.preventDefault();
    void act(async () => {
      // The texts go as they are: what the gateway says of them is about what stands there.
      const query = { delta: delta.checked ? "true" : undefined, ack: ack.value || undefined };
      const headers = { "Tidegate-Conflate": never.checked ? "never" : undefined };
      const answer = await link.change("POST", `${topicPath(topic.value)}/messages`, { query, headers, body: oneLineEach(text.value), type: "application/x-ndjson" });
      say(`${things(answer.messages, "message")} published to ${answer.topic}: ${answer.first} to ${answer.last}`);
    });
  };
  const remove = (/** @type {Event} */ event) => {
    event.preventDefault();
    void act(async () => {
      if (!(await confirmed(`Remove all records of ${topic.value} that match ${filter.value}?`, "Remove them"))) return;
      const answer = await link.change("DELETE", `${topicPath(topic.value)}/sow`, { query: { filter: filter.value } });
      say(`${things(answer.deleted, "record")} removed from ${topic.value}`);
    });
  };
  const example = async () => {
    await act(async () => {
      const rows = await link.gateway.sow(topic.value, { topN: 1 });
      text.value = rows.length > 0 ? pretty(rows[0]) : "";
      if (rows.length === 0) say(`${topic.value} has no record yet`);
    });
  };
  element.append(
    offered,
    h("div", { class: "halves" },
      h("form", { class: "card", "aria-label": "Publish", onsubmit: publish }, h("h2", {}, "Publish"),
        h("div", { class: "form" }, field("Topic", topic), field("Answer when", ack),
          h("label", { class: "field tick" }, delta, "merge patches"), h("label", { class: "field tick" }, never, "never conflate")),
        h("label", { class: "field" }, h("span", {}, "Messages: JSON, one a line or one on several lines"), text),
        h("p", { class: "buttons" }, h("button", { class: "primary" }, "Publish"), h("button", { type: "button", onclick: () => void example() }, "Take a record as a model"))),
      h("form", { class: "card", "aria-label": "Remove records", onsubmit: remove }, h("h2", {}, "Remove records"),
        field("Filter", filter, "The matching records of the topic under Publish; their subscribers get removals."),
        h("p", { class: "buttons" }, h("button", { class: "danger" }, "Remove"))),
    ),
    card("What was done", done),
  );
  for (const form of element.querySelectorAll("form")) bar(form, link.obstacle("write"));
  void link.gateway.topics().catch(() => []).then((topics) => {
    offered.append(...topics.map(({ topic: name }) => h("option", { value: name })));
    if (!topic.value) topic.value = topics[0]?.topic ?? "";
  });
  return () => {};
}

/**
 * Return messages as NDJSON: a message on several lines becomes one line.
 *
 * @param {string} text
 */
function oneLineEach(text) {
  try {
    JSON.parse(text);
    // Line breaks stand only between the tokens of valid JSON.
    return text.replaceAll(/\s*\n\s*/g, " ").trim();
  } catch {
    return text.trim();
  }
}
