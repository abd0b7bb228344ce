// Microsoft's `fetch-event-source`, from the folder in the first argument; it follows the address in the second.

import { createRequire } from "node:module";

const [folder, address] = process.argv.slice(2);
// It is made for browsers.
globalThis.window = globalThis;
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
const { fetchEventSource } = createRequire(`${folder}/`)("@microsoft/fetch-event-source");
const write = (...parts) => process.stdout.write(`${parts.join("\t")}\n`);

class Refused extends Error {}

// As its README has it: a refusal is thrown on, and so ends it; after anything else it comes back.
await fetchEventSource(address, {
  async onopen(answer) {
    if (answer.ok) return;
    write("refused", answer.status, (await answer.json()).code);
    throw new Refused();
  },
  onmessage({ event, id, data }) {
    if (data) write(event || "message", id, data);
  },
  onclose() {
    throw new Error("the gateway has ended the stream");
  },
  onerror(error) {
    if (error instanceof Refused) throw error;
  },
}).catch(() => {});
