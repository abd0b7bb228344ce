/**
 * A field of one record over time as a chart of uPlot.
 *
 *     const plot = new uPlot({ width, height, series: [{}, { label: "price" }] }, [[], []], element);
 *     const stop = intoPlot(subscription, plot, { key: ["IBM"], fields: ["price"] });
 *
 * @module
 */

/** @typedef {import("../client/replica.js").Row} Row */

/**
 * @typedef {object} Plot What is used of a uPlot.
 * @property {(data: any) => void} setData
 */

/**
 * @typedef {object} Chosen
 * @property {any[]} key The record to follow.
 * @property {string[]} fields The fields of its value, a series each.
 * @property {number} [points] How many points to keep, 600 by default.
 * @property {() => number} [now] The time of a point in seconds; by default the row's own with the
 *   option `timestamp`, else the clock's.
 */

/**
 * Draw each new value of a record; call the answer to stop.
 *
 * @param {import("../client/subscription.js").Subscription} subscription
 * @param {Plot} plot
 * @param {Chosen} chosen
 * @returns {() => void}
 */
export function intoPlot(subscription, plot, { key, fields, points = 600, now }) {
  /** @type {any[][]} */
  const data = [[], ...fields.map(() => [])];
  const draw = (/** @type {Row} */ row) => {
    data[0].push(now?.() ?? (row.timestamp ?? Date.now()) / 1000);
    // A gap where there is no number; an integer beyond 2^53 has no exact place on an axis anyway.
    fields.forEach((field, at) => data[at + 1].push(row.value?.[field] == null ? null : Number(row.value[field])));
    if (data[0].length > points) for (const series of data) series.shift();
    plot.setData(data);
  };
  const held = subscription.get(...key);
  if (held) draw(held);
  const take = (/** @type {any} */ { added, changed }) => {
    const id = subscription.get(...key)?.id;
    for (const row of [...added, ...changed]) if (row.id === id) draw(row);
  };
  subscription.addEventListener("change", take);
  return () => subscription.removeEventListener("change", take);
}
