"""Publishes orders: each is opened and filled in parts; some are canceled.

python examples/order-blotter/orders.py [SECONDS]      to the gateway of TIDEGATE_GATEWAY
"""

import itertools
import os
import random
import sys
import time

from tidegate import Gateway

OPEN_MAX = 30
STEP_S = 0.05


def main(seconds: float) -> None:
    end = time.monotonic() + seconds
    numbers = itertools.count(1)
    orders: dict[int, dict[str, object]] = {}
    left: dict[int, int] = {}
    with Gateway(os.environ.get("TIDEGATE_GATEWAY", "http://127.0.0.1:8080")) as gateway:
        gateway.put_topic("orders", {"key": ["/id"], "expiration": "1d"})
        with gateway.publisher("orders") as publisher:
            while time.monotonic() < end:
                if len(left) < OPEN_MAX:
                    number, quantity = next(numbers), random.randrange(100, 1_000, 100)
                    side, symbol = random.choice(["buy", "sell"]), random.choice("ABCDE")
                    orders[number] = {"id": number, "symbol": symbol, "side": side}
                    left[number] = quantity
                else:
                    number = random.choice(list(left))
                    left[number] -= 100
                state = "open" if left[number] > 0 else "filled"
                publisher.publish({**orders[number], "left": left[number], "state": state})
                if state == "filled":
                    del left[number], orders[number]
                elif random.random() < 0.02:
                    # The publisher may still hold messages of this order, which would recreate it.
                    publisher.flush()
                    gateway.delete_records("orders", record_key=number)
                    del left[number], orders[number]
                time.sleep(STEP_S)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else float("inf"))
