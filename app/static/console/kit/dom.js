/**
 * Elements from calls, and small things that every screen does with them.
 *
 * @module
 */

import { age, clock } from "./formats.js";

/** @typedef {Node | string | number | null | undefined | false} Child */

const LATE_PERIODS = 2.5; // of a look: one slow answer is no news
const LATE_MS_MIN = 5_000;

/**
 * Return a new element.
 *
 *     h("button", { class: "quiet", onclick: close }, "Close")
 *
 * Texts become text nodes and never markup: what is published must not be able to run here.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} [given] Attributes; `on…` are listeners; null and false are left out.
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    // As a property: the attribute is only the value that a reset returns to.
    else if (name === "value") /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter(isShown).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

/**
 * @param {Child} child
 * @returns {child is Node | string | number}
 */
function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return a line of the size of a cell.
 *
 * @param {string} points As of SVG, in a box of 100 by 20.
 */
export function spark(points) {
  const drawing = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "polyline");
  for (const [name, value] of [["viewBox", "0 -1 100 22"], ["preserveAspectRatio", "none"], ["class", "spark"], ["aria-hidden", "true"]]) {
    drawing.setAttribute(name, value);
  }
  line.setAttribute("points", points);
  drawing.append(line);
  return drawing;
}

/**
 * Return the points of numbers for `spark`; empty for fewer than two.
 *
 * @param {number[]} numbers
 */
export function pointsOf(numbers) {
  if (numbers.length < 2) return "";
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const scale = high > low ? 20 / (high - low) : 0;
  return numbers.map((number, at) => `${((100 * at) / (numbers.length - 1)).toFixed(1)},${(scale ? 20 - scale * (number - low) : 10).toFixed(1)}`).join(" ");
}

/**
 * Return a labelled control.
 *
 * @param {string} name
 * @param {HTMLElement} control
 * @param {string} [hint]
 */
export function field(name, control, hint) {
  return h("label", { class: "field" }, h("span", {}, name), control, hint ? h("small", {}, hint) : null);
}

/**
 * Return a select.
 *
 * @param {(string | [string, string])[]} options Values, or values with the text to show.
 * @param {string} value
 * @param {Record<string, any>} [given]
 */
export function choice(options, value, given = {}) {
  const pairs = options.map((option) => (typeof option === "string" ? [option, option] : option));
  // A value that is not offered, of a link or a layout, is offered for this once.
  if (!pairs.some(([each]) => each === value)) pairs.unshift([value, value]);
  const select = h("select", given, ...pairs.map(([each, text]) => h("option", { value: each }, text)));
  select.value = value;
  return select;
}

/**
 * Return a card with a heading.
 *
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function card(title, ...children) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...children);
}

/**
 * Switch off all controls of a part of the screen, and say why; nothing without a reason.
 *
 * @param {HTMLElement} part
 * @param {string} reason
 */
export function bar(part, reason) {
  if (!reason) return;
  // Not hidden: what is missing without a word is looked for elsewhere.
  for (const control of part.querySelectorAll("button, input, select, textarea")) control.setAttribute("disabled", "");
  part.append(h("p", { class: "note" }, reason));
}

/**
 * Show a message for some seconds.
 *
 * @param {string} text
 */
export function toast(text) {
  const shown = /** @type {HTMLElement} */ (document.getElementById("toast"));
  shown.textContent = text;
  shown.hidden = false;
  clearTimeout(Number(shown.dataset.timer));
  shown.dataset.timer = String(setTimeout(() => (shown.hidden = true), 4_000));
}

/**
 * Copy a text, and say so.
 *
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS the browser has no clipboard interface; a selected text area still works.
    const area = h("textarea", { class: "offstage" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("Copied");
}

/**
 * Offer a text as a file.
 *
 * @param {string} name
 * @param {string} text
 * @param {string} type
 */
export function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}

/**
 * Show a dialog; a promise of the moment when it is closed.
 *
 * @param {string} title
 * @param {...(Child | Child[])} children
 * @returns {{ dialog: HTMLDialogElement, closed: Promise<void> }}
 */
export function openDialog(title, ...children) {
  const close = h("button", { class: "quiet", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  const dialog = h("dialog", { "aria-label": title }, h("header", {}, h("h2", {}, title), close), ...children);
  document.body.append(dialog);
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(undefined);
    });
  });
  dialog.showModal();
  return { dialog, closed: /** @type {Promise<void>} */ (closed) };
}

/**
 * Ask a question; true if the answer is yes.
 *
 * @param {string} question
 * @param {string} yes The word on the button.
 */
export async function confirmed(question, yes) {
  let answer = false;
  const accept = () => {
    answer = true;
    dialog.close();
  };
  const buttons = h("p", { class: "buttons" }, h("button", { class: "danger", onclick: accept }, yes));
  const { dialog, closed } = openDialog(question, buttons);
  await closed;
  return answer;
}

/**
 * Return the terms and texts of a list of facts, for a `dl`.
 *
 * @param {Record<string, any>} facts
 */
export function terms(facts) {
  return Object.entries(facts).flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)]);
}

/**
 * Return what is known only while the gateway is there; without it, something that claims nothing.
 *
 * The style sheet shows one of the two, by the state of the connection in `data-state` of the body.
 *
 * @param {Child} known
 * @param {string} [unknown]
 */
export function asserted(known, unknown = "not known") {
  return [h("span", { class: "asserted" }, known), h("span", { class: "unasserted" }, unknown)];
}

/**
 * Look now and then, as `every` does, and say how old the last answer is once it is older than it should be.
 *
 * @param {HTMLElement} place Gets the line.
 * @param {number} ms
 * @param {() => Promise<void> | void} look
 */
export function watched(place, ms, look) {
  const line = h("p", { class: "as-of", hidden: true });
  place.prepend(line);
  let at = 0;
  const stop = every(ms, async () => {
    await look();
    at = Date.now();
    line.hidden = true;
  });
  const timer = setInterval(() => {
    const old = Date.now() - at;
    line.hidden = at === 0 || old < Math.max(LATE_MS_MIN, LATE_PERIODS * ms) || document.visibilityState !== "visible";
    if (!line.hidden) write(line, `as of ${clock(at).slice(0, 8)}, ${age(old)} old`);
  }, 1_000);
  return () => {
    clearInterval(timer);
    line.remove();
    return stop();
  };
}

/**
 * Call a function now and then, not while the page is hidden; call the answer to stop.
 *
 * The next call begins after the answer to the last, so a slow gateway is not asked twice at once.
 * Await the stop where a call that is under way must have ended.
 *
 * @param {number} ms
 * @param {() => Promise<void> | void} look
 * @returns {() => Promise<void>}
 */
export function every(ms, look) {
  let isOver = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const run = async () => {
    if (document.visibilityState === "visible") {
      try {
        await look();
      } catch (error) {
        // The header shows that the gateway is out; other errors are faults of the screen.
        if (error instanceof TypeError || error instanceof ReferenceError) console.error(error);
      }
    }
    if (!isOver) timer = setTimeout(() => (running = run()), ms);
  };
  let running = run();
  return () => {
    isOver = true;
    clearTimeout(timer);
    return running;
  };
}

/**
 * Mark a changed cell: two names for each colour, as an animation begins again only under another one.
 *
 * @param {HTMLElement} cell
 * @param {any} before
 * @param {any} now
 */
export function flash(cell, before, now) {
  const isNumber = typeof before === typeof now && (typeof now === "number" || typeof now === "bigint");
  const name = !isNumber ? "new" : now > before ? "up" : "down";
  const next = cell.classList.contains(`${name}-1`) ? `${name}-2` : `${name}-1`;
  calm(cell);
  cell.classList.add(next);
}

const FLASHES = ["up-1", "up-2", "down-1", "down-2", "new-1", "new-2"];

/**
 * Take the mark of a change from a cell.
 *
 * @param {HTMLElement} cell
 */
export function calm(cell) {
  if (FLASHES.some((name) => cell.classList.contains(name))) cell.classList.remove(...FLASHES);
}

/**
 * Show a text in an element that has nothing else.
 *
 * @param {HTMLElement} place
 * @param {string} text
 */
export function write(place, text) {
  const { firstChild } = place;
  // In the node that is there: a new one is laid out from the beginning.
  if (!(firstChild instanceof Text)) place.replaceChildren(text);
  else if (firstChild.data !== text) firstChild.data = text;
}
