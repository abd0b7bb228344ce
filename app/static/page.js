// The first page: live conflated values of a topic beside what was published to it.

import { followFigures, followStream, followTopics } from "./feed.js";
import { Figures } from "./figures.js";
import { Rows } from "./rows.js";

const FAVOURITE = "market";
const element = (id) => document.getElementById(id);

const rows = new Rows({ head: element("head"), body: element("body"), caption: element("caption") });
const figures = new Figures();
let known = new Map(); // topic -> definition
let chosen = null;
let close = () => {};

function show(state, text) {
  const shown = element("state");
  if (shown.textContent !== text) shown.textContent = text;
  shown.dataset.state = state;
}

function hint(text) {
  element("hint").textContent = text;
  element("hint").hidden = !text;
  element("scroll").hidden = Boolean(text);
}

function remember() {
  const place = new URLSearchParams({ topic: chosen, interval: element("interval").value });
  history.replaceState(null, "", `#${place}`);
}

// Follow the chosen topic at the chosen interval, from the beginning.
function follow() {
  close();
  const keyed = known.get(chosen).key.length > 0;
  const interval = element("interval");
  interval.disabled = !keyed;
  interval.title = keyed ? "" : "The topic has no key, so there is nothing to conflate by.";
  const options = keyed && interval.value !== "none" ? `conflation=${interval.value}` : "";
  rows.reset(known.get(chosen).key, chosen);
  figures.reset();
  hint("");
  remember();
  show("connecting", "connecting");
  const closeStream = followStream(chosen, options, {
    hello: ({ subscriptions }) => {
      show("live", "live");
      element("granted").textContent = `Granted: ${subscriptions[0].options}`;
    },
    rows: (batch) => {
      rows.take(batch);
      figures.deliver(batch.filter((row) => row.op !== "snapshot").length);
    },
    replaced: () => rows.clear(),
    lost: (reason) => show("lost", reason),
    ended: (reason) => show("lost", `ended: ${reason.toLowerCase().replaceAll("_", " ")}`),
  });
  const closeFigures = followFigures(chosen, (told, at) => figures.sample(told.messages_in, at));
  close = () => {
    closeStream();
    closeFigures();
  };
}

function offer(names) {
  const select = element("topic");
  const offered = [...select.options].map((option) => option.value);
  if (offered.join("\n") === names.join("\n")) return;
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

function takeTopics(topics) {
  if (topics === null) {
    show("lost", "the gateway does not answer");
    return;
  }
  known = new Map(topics.map((topic) => [topic.topic, topic]));
  const names = [...known.keys()];
  offer(names);
  if (chosen !== null && known.has(chosen)) return;
  if (names.length === 0) {
    close();
    chosen = null;
    show("live", "connected");
    hint(`No topics yet. Publish something:\n\ncurl ${location.origin}/v1/topics/prices/messages -H 'Content-Type: application/json' -d '{"symbol":"IBM","price":191.5}'`);
    return;
  }
  const wished = new URLSearchParams(location.hash.slice(1)).get("topic");
  chosen = [wished, FAVOURITE].find((name) => known.has(name)) ?? names[0];
  element("topic").value = chosen;
  follow();
}

const wishedInterval = new URLSearchParams(location.hash.slice(1)).get("interval");
if ([...element("interval").options].some((option) => option.value === wishedInterval)) {
  element("interval").value = wishedInterval;
}
element("topic").addEventListener("change", (event) => {
  chosen = event.target.value;
  follow();
});
element("interval").addEventListener("change", follow);
element("find").addEventListener("input", (event) => rows.search(event.target.value));
element("choices").addEventListener("submit", (event) => event.preventDefault());
followTopics(takeTopics);
