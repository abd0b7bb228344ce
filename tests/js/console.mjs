// The console's modules in Node: what a page finds at `/client.js` is the client of this checkout.

import { register } from "node:module";

const client = new URL("../../clients/js/", import.meta.url).href;
const hook = `export function resolve(name, context, next) {
  if (name.startsWith("/client")) return { url: ${JSON.stringify(client)} + name.slice(1), format: "module", shortCircuit: true };
  return next(name, context);
}
export async function load(url, context, next) {
  return next(url, url.includes("/app/static/") ? { ...context, format: "module" } : context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

/**
 * Return a module of the console.
 *
 * @param {string} path Such as `kit/view.js`.
 */
export function load(path) {
  return import(new URL(`../../app/static/console/${path}`, import.meta.url).href);
}
