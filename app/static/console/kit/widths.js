/**
 * How wide columns are: as wide as what is in them, and texts no wider than there is room for.
 *
 * Pure: the table measures, and this decides.
 *
 * @module
 */

/**
 * @typedef {object} Content
 * @property {number} px The widest text of the column.
 * @property {boolean} [isNumber] A number that is cut is another number.
 * @property {boolean} [isPinned] Stays in sight beside the columns that scroll.
 * @property {number} [width] What the user has chosen.
 */

const TEXT_PX_MAX = 320; // before there is room to spare
const PINNED_SHARE_MAX = 0.55; // of the room, for all pinned texts: the others have to be seen, too
const PINNED_PX_MIN = 72;

/**
 * Return the width of each column in px.
 *
 * @param {Content[]} contents
 * @param {number} room
 */
export function widthsOf(contents, room) {
  const pinned = contents.filter((each) => isFlexible(each) && each.isPinned);
  const pinnedMax = Math.max(PINNED_PX_MIN, Math.floor((PINNED_SHARE_MAX * room) / Math.max(1, pinned.length)));
  const widths = contents.map((each) => {
    if (!isFlexible(each)) return each.width ?? each.px;
    return Math.min(each.px, each.isPinned ? pinnedMax : TEXT_PX_MAX);
  });
  let spare = room - widths.reduce((sum, width) => sum + width, 0);
  // What is named comes before what is said of it.
  for (const at of [...contents.keys()].sort((one, other) => Number(contents[other].isPinned ?? false) - Number(contents[one].isPinned ?? false))) {
    if (!isFlexible(contents[at])) continue;
    const more = Math.max(0, Math.min(contents[at].px - widths[at], spare));
    widths[at] += more;
    spare -= more;
  }
  return widths;
}

/** @param {Content} content */
function isFlexible({ isNumber, width }) {
  return !isNumber && width === undefined;
}

/**
 * Return a text cut in its middle: keys of one kind begin alike, and differ at their ends.
 *
 * @param {string} text
 * @param {number} length In characters.
 */
export function cutMiddle(text, length) {
  const characters = [...text];
  if (characters.length <= length) return text;
  const tail = Math.max(1, Math.ceil(0.6 * (length - 1)));
  const head = Math.max(0, length - 1 - tail);
  return `${characters.slice(0, head).join("")}…${characters.slice(-tail).join("")}`;
}
