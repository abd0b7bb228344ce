/**
 * A subscription as a table of Perspective (`@finos/perspective`, `@perspective-dev/client`).
 *
 *     const table = await worker.table(schema, { index: "symbol" });
 *     const stop = intoPerspective(subscription, table);
 *
 * The table's index has to be a column that identifies a record, such as the only key field.
 *
 * @module
 */

/** @typedef {import("../client/replica.js").Row} Row */

/**
 * @typedef {object} Table What is used of a Perspective table.
 * @property {() => Promise<string | null | undefined>} get_index
 * @property {(rows: any[]) => Promise<unknown>} update
 * @property {(keys: any[]) => Promise<unknown>} remove
 */

/**
 * Keep a table equal to the records of a subscription; call the answer to stop.
 *
 * @param {import("../client/subscription.js").Subscription} subscription
 * @param {Table} table
 * @returns {() => void}
 */
export function intoPerspective(subscription, table) {
  const changes = subscription[Symbol.asyncIterator]();
  const run = async () => {
    const index = await table.get_index();
    if (!index) throw new TypeError("the table needs an index, or rows cannot be replaced");
    // Changes during an update are merged into the next one, so a slow table never lags behind.
    for await (const { added, changed, removed } of changes) {
      const rows = [...added, ...changed].map((row) => ({ ...cleared(row), ...plain(row.value) }));
      if (rows.length > 0) await table.update(rows);
      if (removed.length > 0) await table.remove(removed.map((row) => plain(row.previous ?? row.value)[index]));
    }
  };
  // Unhandled on purpose: an adapter that fails silently shows old values as if they were new.
  void run();
  return () => void changes.return();
}

/**
 * Return null for each field that a record no longer has: an update keeps the columns that it leaves out.
 *
 * @param {Row} row
 */
function cleared({ value, previous }) {
  const gone = Object.keys(previous ?? {}).filter((name) => !Object.hasOwn(value, name));
  return Object.fromEntries(gone.map((name) => [name, null]));
}

/**
 * Return a value with integers beyond 2^53 as text: no column type of Perspective holds them.
 *
 * @param {Record<string, any>} value
 */
function plain(value) {
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, typeof field === "bigint" ? String(field) : field]));
}
