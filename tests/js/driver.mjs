// Runs what it reads, a JSON text of JavaScript a line, and answers each line with one.

import { createInterface } from "node:readline";

import * as client from "../../clients/js/client.js";

const AsyncFunction = (async () => {}).constructor;
const UNTIL_MS_MAX = 120_000;
const state = {};

// Resolves once something is so; a test says what it waits for, and no time.
async function until(isSo) {
  for (const end = Date.now() + UNTIL_MS_MAX; Date.now() < end; ) {
    if (isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`it never came: ${isSo}`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = {};
  try {
    const run = new AsyncFunction("state", "until", ...Object.keys(client), JSON.parse(line));
    answer.value = (await run(state, until, ...Object.values(client))) ?? null;
  } catch (error) {
    answer.error = String(error?.stack ?? error);
  }
  process.stdout.write(`${client.stringify(answer)}\n`);
}
