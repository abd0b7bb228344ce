"""Prices that never rest: 40 symbols, 2,000 messages a second, into the topic `prices`.

python examples/feed.py [SECONDS]      until Ctrl-C, or for so long; the gateway of TIDEGATE_GATEWAY
"""

import os
import random
import sys
import time

from tidegate import Gateway

SYMBOLS = [f"{first}{second}" for first in "ABCDE" for second in "JKLMNOPQ"]
PER_SECOND = 2_000
STEP_S = 0.02


def main(seconds: float) -> None:
    end = time.monotonic() + seconds
    prices = {symbol: random.uniform(20, 200) for symbol in SYMBOLS}
    with Gateway(os.environ.get("TIDEGATE_GATEWAY", "http://127.0.0.1:8080")) as gateway:
        gateway.put_topic("prices", {"key": ["/symbol"], "history": {"messages": 200_000}})
        with gateway.publisher("prices") as publisher:
            while time.monotonic() < end:
                for symbol in random.choices(SYMBOLS, k=int(PER_SECOND * STEP_S)):
                    prices[symbol] *= 1 + random.gauss(0, 0.0005)
                    size = random.randrange(100, 1_000, 100)
                    publisher.publish(
                        {"symbol": symbol, "price": round(prices[symbol], 2), "size": size}
                    )
                time.sleep(STEP_S)
    print(publisher.delivered, "published")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else float("inf"))
