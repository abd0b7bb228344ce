// Follows a stream with @durable-streams/client: prints each row as one line of JSON.
// Arguments: the folder of node_modules, the address, and how it waits: long-poll or sse.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, live] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const { stream } = await import(pathToFileURL(require.resolve("@durable-streams/client")));

const reading = await stream({ url, offset: "-1", live });
reading.subscribeJson((batch) => {
  for (const row of batch.items) console.log(JSON.stringify(row));
});
await reading.closed;
