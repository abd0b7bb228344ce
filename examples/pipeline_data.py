"""Made-up data for the streams of `examples/pipeline-*.toml`, until Ctrl-C or for some seconds.

    python examples/pipeline_data.py ticks            quotes and trades, to the topic `ticks`
    python examples/pipeline_data.py ticks orders     orders too, to the topic `orders`
    python examples/pipeline_data.py redis            orders, to the stream `orders` of a Redis

Each writes 100 messages a second to the gateway of TIDEGATE_GATEWAY, else http://127.0.0.1:8080.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from tidegate import Gateway

SYMBOLS = ["AAPL", "AMZN", "GOOG", "IBM", "MSFT", "NVDA", "ORCL", "TSLA"]
PER_STEP, STEP_S = 10, 0.1
HISTORY = {"messages": 1_000_000, "age": "1h"}


def ticks() -> Iterator[dict[str, Any]]:
    """Yield quotes and trades whose prices wander."""
    prices = {symbol: random.uniform(20, 200) for symbol in SYMBOLS}
    while True:
        symbol = random.choice(SYMBOLS)
        prices[symbol] *= 1 + random.gauss(0, 0.0005)
        yield {
            "tickerId": symbol,
            "exchange": random.choice(["N", "Q"]),
            "type": random.choice(["quote", "trade"]),
            "price": round(prices[symbol], 2),
            "size": random.randrange(100, 1_000, 100),
            "ts": int(time.time() * 1_000),
        }


def orders() -> Iterator[dict[str, Any]]:
    """Yield 500 orders, again and again, some of which are filled."""
    while True:
        number = random.randrange(500)
        yield {
            "orderId": number,
            "region": ["EU", "US", "APAC"][number % 3],
            "symbol": SYMBOLS[number % len(SYMBOLS)],
            "qty": random.randrange(10, 500, 10),
            "state": random.choice(["open", "open", "filled"]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Made-up data for examples/pipeline-*.toml.")
    parser.add_argument("what", nargs="+", choices=["ticks", "orders", "redis"])
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"))
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    given = parser.parse_args()
    end_s = time.monotonic() + given.seconds
    with Gateway(os.environ.get("TIDEGATE_GATEWAY", "http://127.0.0.1:8080")) as gateway:
        writers: list[Callable[[], object]] = []
        if "ticks" in given.what:
            gateway.put_topic("ticks", {"key": ["/tickerId", "/type"], "history": HISTORY})
            made = ticks()
            writers.append(lambda: gateway.publish("ticks", [next(made) for _ in range(PER_STEP)]))
        if "orders" in given.what:
            gateway.put_topic("orders", {"key": ["/orderId"], "history": HISTORY})
            taken = orders()
            writers.append(
                lambda: gateway.publish("orders", [next(taken) for _ in range(PER_STEP)])
            )
        if "redis" in given.what:
            from redis import Redis

            client, entered = Redis.from_url(given.redis), orders()
            writers.append(
                lambda: [
                    client.xadd("orders", {"json": json.dumps(next(entered))}, maxlen=100_000)
                    for _ in range(PER_STEP)
                ]
            )
        while time.monotonic() < end_s:
            for write in writers:
                write()
            time.sleep(STEP_S)


if __name__ == "__main__":
    main()
