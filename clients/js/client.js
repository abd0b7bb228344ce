/**
 * The client of a Tidegate gateway, for pages and for Node.
 *
 * A gateway serves this file as `/client.js`, so that a page needs no package and no build:
 *
 *     import { connect } from "/client.js";
 *
 * It is plain JavaScript with types in its comments, which `tsc` checks: what is served, tested and
 * read is one text, and no machine needs Node to serve it.
 *
 * @module
 */

import { Gateway } from "./client/gateway.js";

/** @typedef {import("./client/gateway.js").ConnectOptions} ConnectOptions */
/** @typedef {import("./client/transport.js").TransportOptions} TransportOptions */
/** @typedef {import("./client/gateway.js").Published} Published */
/** @typedef {import("./client/gateway.js").PublishOptions} PublishOptions */
/** @typedef {import("./client/gateway.js").Query} Query */
/** @typedef {import("./client/subscription.js").State} State */
/** @typedef {import("./client/subscription.js").Wish} Wish */
/**
 * @template [V=any]
 * @typedef {import("./client/replica.js").Row<V>} Row
 */

/**
 * Return the client of a gateway; the first subscription connects.
 *
 *     const gateway = connect();
 *     const prices = gateway.subscribe("prices", { interval: "500ms", filter: "/desk = 'a'" });
 *     prices.addEventListener("change", ({ added, changed, removed }) => show(added, changed, removed));
 *
 * @param {string | string[]} [address] Such as `http://127.0.0.1:8080`; by default the gateway that
 *   served the page. Of several that share a bus, the next one is used when one does not answer.
 * @param {TransportOptions & ConnectOptions} [options]
 */
export function connect(address = "", options = {}) {
  return new Gateway(address, options);
}

export { Problem, Unreachable } from "./client/errors.js";
export { Gateway, Producer } from "./client/gateway.js";
export { parse, stringify } from "./client/json.js";
export { Changes } from "./client/replica.js";
export { ChangeEvent, NoticeEvent, RowsEvent, Subscription } from "./client/subscription.js";
