/**
 * Lines over time by uPlot, in the colours of the page and as wide as their place.
 *
 * @module
 */

import uPlot from "/static/vendor/uplot-1.6.32/uPlot.esm.js";

import { h } from "./dom.js";
import { clock } from "./formats.js";

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {string} colour A custom property, `--accent`.
 * @property {boolean} [isFilled]
 */

/**
 * @typedef {object} PlotOptions
 * @property {string} label The accessible name.
 * @property {Line[]} lines
 * @property {number} [height]
 * @property {(value: number) => string} [text] A value on the axis and in the legend.
 * @property {boolean} [isTime] False for an axis of plain numbers.
 * @property {number} [seconds] The longest time that is shown, up to now; all there is by default.
 * @property {boolean} [isLogarithmicAcross] For the axis that is no time.
 * @property {(value: number) => string} [across] A value on that axis.
 * @property {boolean} [fromZero] The axis begins at zero, as for rates and counts.
 */

/** A chart that has just begun shows this many seconds, so that its first values are no sliver at its edge. */
const SECONDS_MIN = 10;

/** A chart. */
export class Plot {
  /** @param {PlotOptions} options */
  constructor({ label, lines, height = 190, text = String, isTime = true, seconds, isLogarithmicAcross = false, across, fromZero = true }) {
    this.element = h("div", { class: "plot", role: "img", "aria-label": label });
    this.#height = height;
    // Functions, which are asked with each drawing: the theme may change while a chart is there.
    const [faint, line] = [() => colourOf("--faint"), () => colourOf("--line")];
    const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    /** @type {import("/static/vendor/uplot-1.6.32/uPlot.esm.js").Options} */
    const options = {
      width: 320, height, cursor: { y: false }, padding: [8, 38, 0, 0],
      scales: {
        x: { time: isTime, distr: isLogarithmicAcross ? 3 : 1, range: seconds ? (_, low, high) => [Math.max(high - seconds, Math.min(low, high - SECONDS_MIN)), high] : undefined },
        y: fromZero ? { range: (_, __, high) => [0, high > 0 ? high * 1.08 : 1] } : {} },
      axes: [{ ...axis, space: isTime ? 96 : 72, values: (_, ticks) => ticks.map((tick) => (isTime ? clock(1_000 * tick).slice(0, isShort(ticks) ? 12 : 8) : tick === null ? "" : (across ?? text)(tick))) }, { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : text(tick))) }],
      // As properties: uPlot colours the marks of the legend once, and the theme may change.
      // Without a cursor the legend has the newest values: a line of dashes says nothing.
      hooks: { setCursor: [(plot) => plot.cursor.idx === null && showNewest(plot)] },
      legend: { markers: { stroke: (_, at) => `var(${lines[at - 1].colour})`, fill: (_, at) => (lines[at - 1].isFilled ? `var(${lines[at - 1].colour}-fill)` : "transparent") } },
      series: [
        isTime ? { value: "{HH}:{mm}:{ss}" } : { label: "at", value: (/** @type {any} */ _, /** @type {number | null} */ value) => (value === null || value === undefined ? "–" : (across ?? text)(value)) },
        ...lines.map(({ label: name, colour, isFilled }) => ({
          label: name, stroke: () => colourOf(colour), width: 1.6, points: { show: false }, spanGaps: false,
          fill: isFilled ? () => colourOf(`${colour}-fill`) : undefined,
          value: (/** @type {any} */ _, /** @type {number | null} */ value) => (value === null || value === undefined ? "–" : text(value)),
        })),
      ],
    };
    this.#plot = new uPlot(options, [[], ...lines.map(() => [])], this.element);
    this.#watch = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      // A redraw within the observer would change what it observes.
      if (width > 0) requestAnimationFrame(() => this.#plot.setSize({ width, height: this.#height }));
    });
    this.#watch.observe(this.element);
  }

  #plot;
  #height;
  #watch;

  /** @param {(number | null)[][]} columns The times in seconds, then the values of each line. */
  draw(columns) {
    this.#plot.setData(/** @type {any} */ (columns));
    if (this.#plot.cursor.idx === null) showNewest(this.#plot);
  }

  close() {
    this.#watch.disconnect();
    this.#plot.destroy();
  }
}

/** @param {uPlot} plot */
function showNewest(plot) {
  const { length } = plot.data[0];
  if (length > 0) plot.setLegend({ idx: length - 1 }, false);
}

/**
 * Return true for ticks that differ in milliseconds only.
 *
 * @param {number[]} ticks
 */
function isShort(ticks) {
  return ticks.length > 1 && ticks[1] - ticks[0] < 1;
}

/** The last values of some lines. */
export class Recent {
  /**
   * @param {number} lines
   * @param {number} points
   */
  constructor(lines, points) {
    this.columns = Array.from({ length: lines + 1 }, () => /** @type {(number | null)[]} */ ([]));
    this.#points = points;
  }

  #points;

  /**
   * Put what was before in front.
   *
   * @param {(number | null)[][]} rows The time of each in seconds, then a value of each line.
   */
  seed(rows) {
    const [first = Infinity] = /** @type {number[]} */ (this.columns[0]);
    const earlier = rows.filter(([at]) => Number(at) < first);
    this.columns.forEach((column, at) => column.unshift(...earlier.map((row) => row[at])));
  }

  /** @param {...(number | null)} values One of each line, now. */
  push(...values) {
    [Date.now() / 1_000, ...values].forEach((value, at) => {
      this.columns[at].push(value);
      if (this.columns[at].length > this.#points) this.columns[at].shift();
    });
  }
}

/**
 * Return a colour of the page as a canvas takes it.
 *
 * @param {string} name
 */
export function colourOf(name) {
  const held = colours.get(name);
  if (held) return held;
  // Through an element: a custom property is only text until something is painted with it.
  const probe = h("i", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  colours.set(name, colour);
  return colour;
}

/** @type {Map<string, string>} Asked for with each drawing, and the same until the theme changes. */
const colours = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.clear());
new MutationObserver(() => colours.clear()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
