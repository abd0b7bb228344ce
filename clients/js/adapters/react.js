/**
 * A subscription as a hook of React, 18 or newer.
 *
 *     const useSubscription = subscriptionHook(React);
 *     const { rows, state } = useSubscription(gateway, "prices", { interval: "500ms" });
 *
 * React is given and not imported: the file also works where it is served by a gateway.
 *
 * @module
 */

/**
 * @template [V=any]
 * @typedef {import("../client/replica.js").Row<V>} Row
 */
/**
 * @template [V=any]
 * @typedef {import("../client/subscription.js").Subscription<V>} Subscription
 */
/** @typedef {import("../client/subscription.js").Wish} Wish */
/** @typedef {import("../client/subscription.js").State} State */

/**
 * @typedef {object} Reacts What is used of React.
 * @property {(make: () => any, of: any[]) => any} useMemo
 * @property {(subscribe: (changed: () => void) => () => void, shown: () => any, server?: () => any) => any} useSyncExternalStore
 */

/**
 * What the hook shows.
 *
 * @template [V=any]
 * @typedef {object} Shown
 * @property {readonly Row<V>[]} rows By `orderBy`; without it, in the order in which the records came.
 * @property {State} state `live` or `polling` if the rows are those of the topic; as of a subscription.
 * @property {string} reason Why it is `polling`, `lost` or `closed`, in one line for a log or a tooltip.
 * @property {string} code The code of the refusal that is the reason; empty without one.
 * @property {Subscription<V> | null} subscription Null until the component is mounted.
 */

/** @type {Shown} */
const NOTHING = Object.freeze({ rows: Object.freeze([]), state: "connecting", reason: "", code: "", subscription: null });
const EVENTS = ["change", "state"];

/**
 * Return the hook; call it once, outside of components.
 *
 * @param {Reacts} React
 */
export function subscriptionHook({ useMemo, useSyncExternalStore }) {
  /**
   * Follow a topic as long as the component is there; its rows are in the order of `orderBy`.
   *
   * @template [V=any]
   * @param {{ subscribe: (topic: string, wish?: Wish) => Subscription }} gateway
   * @param {string} topic
   * @param {Wish} [wish]
   * @returns {Shown<V>}
   */
  return function useSubscription(gateway, topic, wish = {}) {
    // By its text: a wish is written in place, so it is another object in each rendering.
    const store = useMemo(() => storeOf(gateway, topic, wish), [gateway, topic, JSON.stringify(wish)]);
    return useSyncExternalStore(store.subscribe, store.shown, () => NOTHING);
  };
}

/**
 * @param {{ subscribe: (topic: string, wish?: Wish) => Subscription }} gateway
 * @param {string} topic
 * @param {Wish} wish
 */
function storeOf(gateway, topic, wish) {
  /** @type {Shown} The same object until something changes, as React requires. */
  let shown = NOTHING;
  return {
    shown: () => shown,
    // Here and not when it is made: React makes stores that it never mounts.
    subscribe: (/** @type {() => void} */ changed) => {
      const subscription = gateway.subscribe(topic, wish);
      const show = () => {
        const rows = wish.orderBy ? subscription.inOrder() : [...subscription.rows.values()];
        const { state, reason, code } = subscription;
        shown = { rows, state, reason, code, subscription };
        changed();
      };
      for (const name of EVENTS) subscription.addEventListener(name, show);
      return () => {
        for (const name of EVENTS) subscription.removeEventListener(name, show);
        subscription.close();
      };
    },
  };
}
