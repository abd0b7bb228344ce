/**
 * The dialog in which a panel's columns are chosen.
 *
 * @module
 */

import { choice, field, h, openDialog } from "../kit/dom.js";
import { FORMATS, isQuietAtFirst } from "../kit/formats.js";
import { TOTALS } from "../kit/view.js";

/** @typedef {import("./panel.js").ColumnLayout} ColumnLayout */

/**
 * Ask for the columns; resolves when the dialog is closed.
 *
 * @param {ColumnLayout[]} columns
 * @param {{ trend: string, isCalm: boolean, numbers: string[], titleOf: (path: string) => string }} panel
 * @returns {Promise<{ columns: ColumnLayout[], trend: string, isCalm: boolean }>}
 */
export async function chooseColumns(columns, { trend, isCalm, numbers, titleOf }) {
  const chosen = columns.map((column) => ({ ...column }));
  const list = h("div", { class: "list" });
  const draw = () => list.replaceChildren(...chosen.map((column, at) => rowOf(column, titleOf, (by) => {
    const [moved] = chosen.splice(at, 1);
    chosen.splice(Math.max(0, at + by), 0, moved);
    draw();
    // The button has moved with its row; the keyboard stays on it.
    const moves = /** @type {NodeListOf<HTMLButtonElement>} */ (list.querySelectorAll(`button[data-by="${by}"]`));
    moves[Math.max(0, Math.min(chosen.length - 1, at + by))]?.focus();
  })));
  draw();
  const line = choice([["", "none"], .../** @type {[string, string][]} */ (numbers.map((path) => [path, titleOf(path)]))], trend);
  const calm = h("input", { type: "checkbox" });
  calm.checked = !isCalm;
  const { closed } = openDialog(
    "Columns", list,
    h("div", { class: "form" }, field("A line in each row, of", line), h("label", { class: "field tick" }, calm, "changed cells flash")),
  );
  await closed;
  return { columns: chosen, trend: line.value, isCalm: !calm.checked };
}

/**
 * @param {ColumnLayout} column
 * @param {(path: string) => string} titleOf
 * @param {(by: number) => void} move
 */
function rowOf(column, titleOf, move) {
  const title = titleOf(column.path);
  const isShown = h("input", { type: "checkbox" });
  isShown.checked = !column.isHidden;
  isShown.addEventListener("change", () => (column.isHidden = !isShown.checked));
  const isPinned = h("input", { type: "checkbox" });
  isPinned.checked = column.isPinned ?? false;
  isPinned.addEventListener("change", () => (column.isPinned = isPinned.checked));
  const flashes = h("input", { type: "checkbox" });
  flashes.checked = !(column.isQuiet ?? isQuietAtFirst(column.path, column.format));
  flashes.addEventListener("change", () => (column.isQuiet = !flashes.checked));
  const format = choice(FORMATS, column.format ?? "auto", { "aria-label": `Format of ${title}` });
  format.addEventListener("change", () => (column.format = /** @type {any} */ (format.value)));
  const total = choice(TOTALS, column.total ?? "", { "aria-label": `Total of ${title}` });
  total.addEventListener("change", () => (column.total = /** @type {any} */ (total.value)));
  const step = (/** @type {number} */ by, /** @type {string} */ sign, /** @type {string} */ name) =>
    h("button", { class: "quiet", "data-by": by, "aria-label": `Move ${title} ${name}`, onclick: () => move(by) }, sign);
  return h(
    "div", {}, h("label", { class: "field tick" }, isShown, title), h("label", { class: "field tick" }, isPinned, "pinned"), h("label", { class: "field tick" }, flashes, "flashes"), format, total,
    h("span", {}, step(-1, "↑", "up"), step(1, "↓", "down")),
  );
}
