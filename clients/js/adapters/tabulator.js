/**
 * A subscription as the rows of Tabulator (`tabulator-tables`).
 *
 *     const table = new Tabulator(element, { index: "id", columns });
 *     table.on("tableBuilt", () => intoTabulator(subscription, table));
 *
 * The table's data are {@link Row}s: a column's field is `value.price`.
 *
 * @module
 */

/** @typedef {import("../client/replica.js").Row} Row */

/**
 * @typedef {object} Table What is used of a Tabulator.
 * @property {(rows: Row[]) => Promise<unknown>} setData
 * @property {(rows: Row[]) => Promise<unknown>} updateOrAddData
 * @property {(ids: string[]) => unknown} deleteRow
 */

/**
 * Keep a table equal to the records of a subscription; call the answer to stop.
 *
 * @param {import("../client/subscription.js").Subscription} subscription
 * @param {Table} table Built already.
 * @returns {() => void}
 */
export function intoTabulator(subscription, table) {
  const changes = subscription[Symbol.asyncIterator]();
  const run = async () => {
    await table.setData([]);
    // One after the other: Tabulator's calls are asynchronous, and could overtake each other.
    for await (const { added, changed, removed } of changes) {
      // A copy for the table, which writes into the rows that it is given.
      const rows = [...added, ...changed].map((row) => ({ ...row }));
      if (rows.length > 0) await table.updateOrAddData(rows);
      if (removed.length > 0) await table.deleteRow(removed.map((row) => row.id));
    }
  };
  // Unhandled on purpose: an adapter that fails silently shows old values as if they were new.
  void run();
  return () => void changes.return();
}
