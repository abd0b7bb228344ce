// npm's `eventsource`, from the folder in the first argument; it follows the address in the second.

import { createRequire } from "node:module";

const [folder, address] = process.argv.slice(2);
const found = createRequire(`${folder}/`)("eventsource");
// Since version 3 the class has its name; before, it was all that the package gave.
const source = new (found.EventSource ?? found)(address);
for (const name of ["hello", "resumed", "group_begin", "group_end", "message"]) {
  source.addEventListener(name, ({ lastEventId, data }) => {
    process.stdout.write(`${name}\t${lastEventId}\t${data}\n`);
  });
}
