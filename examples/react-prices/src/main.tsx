import { connect } from "@tidegate/client";
import { subscriptionHook } from "@tidegate/client/adapters/react.js";
import * as React from "react";
import { createRoot } from "react-dom/client";

interface Quote {
  symbol: string;
  bid: number;
  ask: number;
}

const OLD_MS = 30_000;
const SHOWN = {
  connecting: "Loading quotes …",
  live: "Live",
  polling: "Live",
  lost: "No connection: these quotes are old",
  closed: "Ended: reload the page",
};

// Once a module: a hook that is made in a component is another one with each rendering.
const useSubscription = subscriptionHook(React);
const gateway = connect();

/** Return the time in ms, and render again each second: a price gets old without an event. */
function useNow(): number {
  const [now, setNow] = React.useState(Date.now);
  React.useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

function Quotes() {
  const wish = { interval: "500ms", orderBy: "/symbol", options: "timestamp" };
  const { rows, state, reason } = useSubscription<Quote>(gateway, "quotes", wish);
  const now = useNow();
  const follows = state === "live" || state === "polling";
  return (
    <>
      <p title={reason}>
        {SHOWN[state]} {state === "lost" && <button onClick={() => gateway.retry()}>Retry</button>}
      </p>
      <table>
        <tbody>
          {rows.map(({ id, value, timestamp = now }) => (
            <tr key={id} className={follows && now - timestamp < OLD_MS ? "" : "old"}>
              <td>{value.symbol}</td>
              <td>{value.bid.toFixed(2)}</td>
              <td>{value.ask.toFixed(2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

createRoot(document.getElementById("root")!).render(<Quotes />);
