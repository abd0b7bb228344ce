// An EventSource of npm: the module in the first argument, from the folder in the second; it follows the address in
// the third.

import { createRequire } from "node:module";

const [name, folder, address] = process.argv.slice(2);
const found = createRequire(`${folder}/`)(name);
const EventSource = found.EventSource ?? found.EventSourcePolyfill;
const write = (...parts) => process.stdout.write(`${parts.join("\t")}\n`);
const source = new EventSource(address);
for (const event of ["hello", "resumed", "group_begin", "group_end", "message", "goodbye"]) {
  source.addEventListener(event, ({ lastEventId, data }) => write(event, lastEventId, data));
}
source.addEventListener("error", ({ code, status }) => {
  // `eventsource` has the status of an answer as `code`, the polyfill as `status`.
  if (source.readyState === 2) write("refused", code ?? status, "");
});
