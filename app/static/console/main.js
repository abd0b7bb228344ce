/**
 * The console: its screens, the address of what is shown, the theme, and the login.
 *
 * @module
 */

import { every, h, toast } from "./kit/dom.js";
import { Link, reasonOf } from "./kit/link.js";
import * as blotter from "./screens/blotter.js";
import * as charts from "./screens/charts.js";
import * as overview from "./screens/overview.js";
import * as pipelines from "./screens/pipelines.js";
import * as playground from "./screens/playground.js";
import * as publish from "./screens/publish.js";
import * as sessions from "./screens/sessions.js";
import * as topics from "./screens/topics.js";

/**
 * A screen: fills its place, and returns how to leave it.
 *
 * @typedef {(screen: ScreenPlace) => () => void} Screen
 */

/**
 * @typedef {object} ScreenPlace
 * @property {HTMLElement} element
 * @property {Link} link
 * @property {URLSearchParams} query What stands behind the screen's name in the address.
 * @property {(query: Record<string, string>) => void} remember Put what is shown into the address.
 */

/** @type {Record<string, [string, Screen]>} */
const SCREENS = {
  overview: ["Overview", overview.show],
  blotter: ["Blotter", blotter.show],
  charts: ["Charts", charts.show],
  playground: ["Playground", playground.show],
  sessions: ["Sessions", sessions.show],
  topics: ["Topics", topics.show],
  publish: ["Publish", publish.show],
  pipelines: ["Pipelines", pipelines.show],
};
const FIRST = Object.keys(SCREENS)[0];
const LOOK_MS = 4_000;
const THEME = "tidegate.theme";

const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const link = new Link();
let leave = () => {};
let isSignedIn = false;

/** Show the screen that the address names: `#/blotter?topic=prices`. */
function route() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const shown = name in SCREENS ? name : FIRST;
  const [title, show] = SCREENS[shown];
  leave();
  for (const dialog of document.querySelectorAll("dialog, .drawer")) dialog.remove();
  for (const each of element("nav").children) {
    const isCurrent = each.getAttribute("href") === `#/${shown}`;
    if (isCurrent) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
    if (isCurrent) each.scrollIntoView({ inline: "nearest", block: "nearest" });
  }
  document.title = `${title} · Tidegate`;
  const place = element("screen");
  place.replaceChildren(h("h1", {}, title));
  leave = show({
    element: place,
    link,
    query: new URLSearchParams(query),
    // In place of the entry in the history: a way back through each keystroke is no way back.
    remember: (given) => history.replaceState(null, "", `#/${shown}?${new URLSearchParams(given)}`),
  });
}

/** Ask for a token, in place of a screen. */
function askForToken() {
  const token = h("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const problem = h("p", { class: "problem", role: "alert" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await link.signIn(token.value.trim());
      begin();
    } catch (error) {
      problem.textContent = /** @type {any} */ (error).document?.detail ?? reasonOf(error);
    }
  };
  const form = h(
    "form", { class: "card login", onsubmit: submit },
    h("h2", {}, "Sign in"), h("label", { class: "field" }, h("span", {}, "Token"), token),
    h("small", {}, "A JWT that this gateway accepts. This makes one: ", h("code", {}, "tidegate token create")),
    h("p", { class: "buttons" }, h("button", { class: "primary" }, "Sign in")), problem,
  );
  if (document.documentElement.dataset.signIn === "provider") form.append(wayToProvider());
  element("screen").replaceChildren(h("h1", {}, "Sign in"), form);
  element("state").textContent = "signed out";
  document.body.classList.add("signed-out");
  token.focus();
}

/** Return the link to the identity provider, which leads back to this very screen. */
function wayToProvider() {
  const here = location.pathname + location.hash;
  const link = h("a", { href: `/v1/login/start?${new URLSearchParams({ return: here })}` }, "Log in at the identity provider");
  return h("p", {}, "Without a token: ", link);
}

// Screens that only ask now and then have no stream that would tell if the gateway is there.
async function look() {
  if (link.gateway.state !== "connecting") return;
  try {
    await link.ask("GET", "/healthz");
    showState({ state: "live" });
  } catch (error) {
    showState({ state: "lost", reason: reasonOf(error) });
  }
}

function begin() {
  isSignedIn = true;
  document.body.classList.remove("signed-out");
  every(LOOK_MS, look);
  element("sign-out").hidden = link.subject === null;
  if (link.subject) element("sign-out").title = `Signed in as ${link.subject.sub}`;
  addEventListener("hashchange", route);
  route();
}

/** @param {{ state: string, reason?: string }} detail */
function showState({ state, reason }) {
  const shown = element("state");
  // Old values look as good as new ones: say since when they are old.
  shown.textContent = state === "lost" ? `lost at ${new Date().toLocaleTimeString("en-GB")}` : state;
  shown.title = reason ?? "";
  shown.dataset.state = document.body.dataset.state = state;
}

function applyTheme() {
  const theme = localStorage.getItem(THEME) ?? "";
  /** @type {HTMLSelectElement} */ (element("theme")).value = theme;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function applyMode() {
  /** @type {HTMLInputElement} */ (element("read-only")).checked = link.isReadOnly;
  document.body.classList.toggle("read-only", link.isReadOnly);
}

element("nav").append(...Object.entries(SCREENS).map(([name, [title]]) => h("a", { href: `#/${name}` }, title)));
element("theme").addEventListener("change", (event) => {
  localStorage.setItem(THEME, /** @type {HTMLSelectElement} */ (event.target).value);
  applyTheme();
});
element("read-only").addEventListener("change", (event) => {
  link.setReadOnly(/** @type {HTMLInputElement} */ (event.target).checked);
  applyMode();
  route();
});
element("sign-out").addEventListener("click", () => void link.signOut().catch((error) => toast(reasonOf(error))));
link.addEventListener("state", (event) => {
  if (!isSignedIn) return;
  const { detail } = /** @type {CustomEvent} */ (event);
  // The client connects with the first subscription; until then the answers to requests count.
  if (detail.state === "connecting") void look();
  else showState(detail);
});
applyTheme();
applyMode();
if (document.documentElement.dataset.signIn === "off" || (await link.resume())) begin();
else askForToken();
