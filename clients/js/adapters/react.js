/**
 * A subscription as a hook of React, 18 or newer.
 *
 *     const useSubscription = subscriptionHook(React);
 *     const { rows, subscription } = useSubscription(gateway, "prices", { interval: "500ms" });
 *
 * React is given and not imported: the file also works where it is served by a gateway.
 *
 * @module
 */

/** @typedef {import("../client/replica.js").Row} Row */
/** @typedef {import("../client/subscription.js").Wish} Wish */
/** @typedef {import("../client/subscription.js").Subscription} Subscription */

/**
 * @typedef {object} Reacts What is used of React.
 * @property {(make: () => any, of: any[]) => any} useMemo
 * @property {(subscribe: (changed: () => void) => () => void, shown: () => any, server?: () => any) => any} useSyncExternalStore
 */

const NOTHING = Object.freeze({ rows: Object.freeze([]), end: "", subscription: null });

/**
 * Return the hook.
 *
 * @param {Reacts} React
 */
export function subscriptionHook({ useMemo, useSyncExternalStore }) {
  /**
   * Follow a topic as long as the component is there; its rows are in the order of `orderBy`.
   *
   * @param {{ subscribe: (topic: string, wish?: Wish) => Subscription }} gateway
   * @param {string} topic
   * @param {Wish} [wish]
   * @returns {{ rows: readonly Row[], end: string, subscription: Subscription | null }}
   */
  return function useSubscription(gateway, topic, wish = {}) {
    // By its text: a wish is written in place, and is another object with each rendering.
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
  /** @type {any} The same object until something changes, as React asks for. */
  let shown = NOTHING;
  return {
    shown: () => shown,
    // Here and not when it is made: React makes stores that it never mounts.
    subscribe: (/** @type {() => void} */ changed) => {
      const subscription = gateway.subscribe(topic, wish);
      const show = () => {
        const rows = wish.orderBy ? subscription.inOrder() : [...subscription.rows.values()];
        shown = { rows, end: subscription.end, subscription };
        changed();
      };
      for (const name of ["change", "ended"]) subscription.addEventListener(name, show);
      return () => {
        for (const name of ["change", "ended"]) subscription.removeEventListener(name, show);
        subscription.close();
      };
    },
  };
}
