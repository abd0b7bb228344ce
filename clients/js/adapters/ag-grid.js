/**
 * A subscription as the rows of AG Grid (`ag-grid-community`).
 *
 *     const grid = createGrid(element, { columnDefs, getRowId: rowId });
 *     const stop = intoGrid(subscription, grid);
 *
 * The grid's data are {@link Row}s: a column's field is `value.price`.
 *
 * @module
 */

/** @typedef {import("../client/replica.js").Row} Row */

/**
 * @typedef {object} Grid What is used of AG Grid's API.
 * @property {(transaction: { add: Row[], update: Row[], remove: Row[] }) => unknown} applyTransactionAsync
 * @property {(option: any, rows: any) => void} setGridOption
 */

/**
 * The grid's `getRowId`: without it a transaction cannot find its rows.
 *
 * @param {{ data: Row }} given
 */
export const rowId = ({ data }) => data.id;

/**
 * Keep a grid equal to the records of a subscription; call the answer to stop.
 *
 * @param {import("../client/subscription.js").Subscription} subscription
 * @param {Grid} grid
 * @returns {() => void}
 */
export function intoGrid(subscription, grid) {
  grid.setGridOption("rowData", [...subscription.rows.values()]);
  const take = (/** @type {any} */ { added, changed, removed }) => {
    // Asynchronous: the grid draws several transactions at once.
    grid.applyTransactionAsync({ add: added, update: changed, remove: removed });
  };
  subscription.addEventListener("change", take);
  return () => subscription.removeEventListener("change", take);
}
