// Follows a stream with StreamDB of @durable-streams/state, on TanStack DB: prints all records after
// each change, as one line of JSON. Arguments: the folder of node_modules, the address, the topic.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, topic, live = "long-poll"] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { createStateSchema } = await load("@durable-streams/state");
const { createStreamDB } = await load("@durable-streams/state/db");

const anything = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
const state = createStateSchema({ rows: { schema: anything, type: topic, primaryKey: "_key" } });
const db = createStreamDB({ streamOptions: { url, contentType: "application/json" }, live, state });

function show() {
  const records = [...db.collections.rows.toArray].map(({ _seq, ...row }) => row);
  console.log(JSON.stringify(records));
}

await db.preload();
show();
db.collections.rows.subscribeChanges(show);
