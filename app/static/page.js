// The first page: live conflated values of a topic beside what was published to it.

import { connect } from "/client.js";

import { followFigures, followTopics } from "./feed.js";
import { Figures } from "./figures.js";
import { offerLogin, showLogin } from "./login.js";
import { Rows } from "./rows.js";

const FAVOURITE = "market";
const UNAUTHENTICATED = 401;
const element = (id) => document.getElementById(id);

const gateway = connect();
const rows = new Rows({ head: element("head"), body: element("body"), caption: element("caption") });
const figures = new Figures();
const JSON_TYPE = "-H 'Content-Type: application/json'";
const PRICES = `${location.origin}/v1/topics/prices`;
// With a key: without one there is nothing to conflate by.
const SIGNED_OUT = {
  provider: "You are not signed in. Log in at the identity provider: the link is at the top of this page.",
  token: "You are not signed in: this gateway asks for a token. Sign in at the console, and come back to this page.",
};
const FIRST_STEPS = `No topics yet. Make one, and publish to it:

curl -X PUT ${PRICES} ${JSON_TYPE} -d '{"key":["/symbol"]}'
curl ${PRICES}/messages ${JSON_TYPE} -d '{"symbol":"IBM","price":191.5}'`;
let known = new Map(); // topic -> definition
let chosen = null;
let followed = null; // the subscription to it
let close = () => {};

// What is on the screen is old as soon as the stream is lost, and has to look so.
function show(state, text) {
  const shown = element("state");
  const words = state === "lost" ? `${text} at ${new Date().toLocaleTimeString()}` : text;
  if (shown.dataset.state !== state || state !== "lost") shown.textContent = words;
  shown.dataset.state = state;
  element("scroll").dataset.state = state;
}

function isThere() {
  return gateway.state === "live" || gateway.state === "polling";
}

// The stream may be there, and the subscription not be granted yet: its rows are old all the same.
function showState() {
  const { state } = isThere() && followed !== null ? followed : gateway;
  const text = gateway.state === "lost" ? "connection lost" : followed?.reason;
  show(state, state === "lost" ? text : state);
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
  const { key } = known.get(chosen);
  const isKeyed = key.length > 0;
  const interval = element("interval");
  interval.disabled = !isKeyed;
  interval.title = isKeyed ? "" : "The topic has no key, so there is nothing to conflate by.";
  rows.reset(key, chosen);
  figures.reset();
  hint("");
  remember();
  const wish = isKeyed ? { interval: interval.value } : { removals: false };
  const subscription = gateway.subscribe(chosen, wish);
  followed = subscription;
  showState();
  subscription.addEventListener("state", ({ detail }) => detail.state !== "closed" && showState());
  subscription.granted.then(({ options }) => (element("granted").textContent = `Granted: ${options}`), () => {});
  subscription.addEventListener("change", (change) => isKeyed && rows.take(change));
  subscription.addEventListener("rows", (event) => {
    const updates = event.rows.filter((row) => row.op !== "snapshot");
    if (!isKeyed) rows.log(updates);
    figures.deliver(updates.length);
  });
  subscription.addEventListener("ended", ({ detail }) => {
    if (detail.reason !== "REQUESTED") show("lost", reasonText(detail.reason));
  });
  const closeFigures = followFigures(gateway, chosen, (told, at) => figures.sample(told.messages_in, at));
  close = () => {
    subscription.close();
    closeFigures();
  };
}

function reasonText(reason) {
  return reason === "REMOVED" ? "topic removed" : `ended: ${reason.toLowerCase().replaceAll("_", " ")}`;
}

function offer(names) {
  const select = element("topic");
  const offered = [...select.options].map((option) => option.value);
  if (offered.join("\n") === names.join("\n")) return;
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

function takeTopics(topics, status) {
  if (topics === null && status === UNAUTHENTICATED) {
    // Nothing was connected, so nothing is lost.
    show("signed-out", "signed out");
    const way = document.documentElement.dataset.signIn;
    hint(SIGNED_OUT[way] ?? SIGNED_OUT.token);
    offerLogin(element("login"), way);
    return;
  }
  if (topics === null) {
    // A stream that lives is the better witness.
    if (!isThere()) show("lost", "the gateway does not answer");
    return;
  }
  // Of what cannot be used there are no rows, and maybe no key: the console shows why.
  const usable = topics.filter(({ state }) => state !== "unusable");
  known = new Map(usable.map((topic) => [topic.topic, topic]));
  const names = [...known.keys()];
  offer(names);
  if (chosen !== null && known.has(chosen)) return;
  if (names.length === 0) {
    close();
    chosen = followed = null;
    show("live", "connected");
    const none = document.documentElement.dataset.signIn === "off" ? FIRST_STEPS : "There is no topic that you may read.";
    hint(topics.length > 0 ? "The gateway cannot use any topic. The console shows why." : none);
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
gateway.addEventListener("state", ({ detail }) => {
  if (detail.state === "closed") show("lost", reasonText(detail.reason));
  else showState();
});
followTopics(gateway, takeTopics);
showLogin(element("login"));
