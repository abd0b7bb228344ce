/**
 * The keys of the page; those of a table are in `table.js`.
 *
 * @module
 */

/** @type {Record<string, string>} What each key does, for the help. */
export const KEYS = {
  "/": "to the field that finds rows", "1 to 9": "to a screen, in the order of the menu", "↑ ↓": "to the rows, and from row to row; also Page Up, Page Down, Home, End",
  Enter: "opens the row", "Ctrl+C": "copies the row", Escape: "closes what is open; leaves a field for the rows", "?": "this help",
};

const ROW_KEYS = new Set(["ArrowDown", "ArrowUp", "PageDown", "PageUp", "Home", "End"]);
const TYPED_INTO = 'input:not([type="checkbox"]), textarea, select';
const KEEPS_ARROWS = `${TYPED_INTO}, [role="grid"], pre, .drawer`;

/**
 * Return what a key means for the page; null for nothing.
 *
 * @param {KeyboardEvent} event
 * @param {boolean} isAsking True while a dialog is open, which has the keyboard.
 * @returns {{ name: "find" | "help" | "rows" } | { name: "screen", at: number } | null}
 */
export function actionOf({ key, target, ctrlKey, altKey, metaKey, defaultPrevented }, isAsking) {
  if (isAsking || ctrlKey || altKey || metaKey || defaultPrevented) return null;
  const place = /** @type {Element} */ (target);
  const isFinding = place.matches('input[type="search"]');
  if (isFinding && (key === "ArrowDown" || key === "Escape")) return { name: "rows" };
  if (ROW_KEYS.has(key)) return place.closest(KEEPS_ARROWS) ? null : { name: "rows" };
  if (place.closest(TYPED_INTO)) return null;
  if (key === "/") return { name: "find" };
  if (key === "?") return { name: "help" };
  return /^[1-9]$/.test(key) ? { name: "screen", at: Number(key) - 1 } : null;
}
