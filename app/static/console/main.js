/**
 * The console: its screens, the address of what is shown, the theme, the login, and the banner of a loss.
 *
 * @module
 */

import { every, h, openDialog, terms, toast } from "./kit/dom.js";
import { age, clock } from "./kit/formats.js";
import { actionOf, KEYS } from "./kit/keys.js";
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
/** `Documentation` of `[project.urls]` in pyproject.toml; a test compares the two. */
const DOCUMENTATION = "https://tidegate.example/docs";
const CHECK_MS = 4_000;
const THEME = "tidegate.theme";
const WITHOUT_KEYS = "tidegate.without-keys";

const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const link = new Link();
let leave = () => {};
let isSignedIn = false;

/** Show the screen that the address names: `#/blotter?topic=prices`. */
function route() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const shown = name in SCREENS ? name : link.firstScreen;
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
  form.append(h("p", {}, linkToDocumentation()));
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

/** Return a link to the documentation, which opens in another tab: the streams of this page go on. */
function linkToDocumentation() {
  return h("a", { href: DOCUMENTATION, target: "_blank", rel: "noreferrer" }, "Documentation");
}

function begin() {
  isSignedIn = true;
  document.body.classList.remove("signed-out");
  every(CHECK_MS, () => link.check());
  every(1_000, showSince);
  element("sign-out").hidden = link.subject === null;
  if (link.subject) element("sign-out").title = `Signed in as ${link.subject.sub}`;
  addEventListener("hashchange", route);
  addEventListener("keydown", press);
  route();
}

/** Say across the page that nothing on it is known to hold any more, and since when. */
function showConnection() {
  if (!isSignedIn) return;
  const { state, since, reason } = link.connection;
  element("state").textContent = document.body.dataset.state = element("state").dataset.state = state;
  const isOut = state === "lost" || state === "closed";
  element("banner").hidden = !isOut;
  element("banner-reload").hidden = state !== "closed";
  const at = clock(since).slice(0, 8);
  const what = state === "lost" ? `Connection lost at ${at}. What is shown is from before; trying again.` : `The gateway has ended this session at ${at}. What is shown is from before.`;
  element("banner-text").textContent = isOut ? `${what}${reason ? ` (${reason})` : ""}` : "";
  showSince();
}

function showSince() {
  // Not in the text of the alert, which a screen reader would read again each second.
  element("banner-age").textContent = element("banner").hidden ? "" : `${age(Date.now() - link.connection.since)} ago`;
}

/** @param {KeyboardEvent} event */
function press(event) {
  const action = localStorage.getItem(WITHOUT_KEYS) ? null : actionOf(event, document.querySelector("dialog") !== null);
  if (action === null) return;
  event.preventDefault();
  if (action.name === "screen") {
    const name = Object.keys(SCREENS)[action.at];
    if (name) location.hash = `#/${name}`;
  } else if (action.name === "help") void help();
  else if (action.name === "find") {
    const find = /** @type {HTMLInputElement | null} */ (element("screen").querySelector('input[type="search"]') ?? element("screen").querySelector("input"));
    find?.focus();
    find?.select();
  } else {
    const grid = /** @type {HTMLElement | null} */ (element("screen").querySelector(".table"));
    grid?.focus();
    // The key that brought the focus there moves, too.
    grid?.dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
  }
}

async function help() {
  if (document.querySelector("dialog")) return;
  const keys = h("input", { type: "checkbox" });
  keys.checked = !localStorage.getItem(WITHOUT_KEYS);
  keys.addEventListener("change", () => (keys.checked ? localStorage.removeItem(WITHOUT_KEYS) : localStorage.setItem(WITHOUT_KEYS, "yes")));
  const { closed } = openDialog(
    "Help", h("dl", { class: "facts" }, ...terms(KEYS)), h("label", { class: "field tick" }, keys, "keys without Ctrl or Alt work"),
    h("p", {}, linkToDocumentation(), " · ", h("a", { href: "/docs" }, "HTTP API"), " · ", h("a", { href: "/openapi.json" }, "OpenAPI"), " · ", h("a", { href: "/metrics" }, "metrics"), " · ", h("a", { href: "/" }, "first page")),
  );
  await closed;
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

element("nav").append(...Object.entries(SCREENS).map(([name, [title]], at) => h("a", { href: `#/${name}`, title: `Key ${at + 1}` }, title)));
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
link.connection.addEventListener("state", showConnection);
element("banner-reload").addEventListener("click", () => location.reload());
element("help").addEventListener("click", () => void help());
applyTheme();
applyMode();
if (document.documentElement.dataset.signIn === "off" || (await link.resume())) begin();
else askForToken();
