"""Generates sample data until Ctrl-C or for `--for` seconds.

    python examples/pipeline_data.py ticks            quotes and trades, to the topic `ticks`
    python examples/pipeline_data.py ticks orders     orders too, to the topic `orders`
    python examples/pipeline_data.py redis            orders, to the stream `orders` of a Redis

Each kind of data has 100 messages a second. Topics are those of the gateway at TIDEGATE_GATEWAY (by
default http://127.0.0.1:8080); the Redis is that of `--redis`.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tidegate import Gateway

SYMBOLS = ["AAPL", "AMZN", "GOOG", "IBM", "MSFT", "NVDA", "ORCL", "TSLA"]
PER_STEP, STEP_S = 10, 0.1
HISTORY = {"messages": 1_000_000, "age": "1h"}


def ticks() -> Iterator[dict[str, Any]]:
    """Yield quotes and trades with random-walk prices."""
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
    """Yield updates of 500 orders in random order; one update in three fills its order."""
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
    parser = argparse.ArgumentParser(description="Sample data for examples/pipeline-*.toml.")
    parser.add_argument("what", nargs="+", choices=["ticks", "orders", "redis"])
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"))
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    arguments = parser.parse_args()
    end_s = time.monotonic() + arguments.seconds
    with Gateway(os.environ.get("TIDEGATE_GATEWAY", "http://127.0.0.1:8080")) as gateway:
        writers: list[Callable[[], object]] = []
        if "ticks" in arguments.what:
            gateway.put_topic("ticks", {"key": ["/tickerId", "/type"], "history": HISTORY})
            new_ticks = ticks()
            writers.append(lambda: gateway.publish("ticks", list(islice(new_ticks, PER_STEP))))
        if "orders" in arguments.what:
            gateway.put_topic("orders", {"key": ["/orderId"], "history": HISTORY})
            new_orders = orders()
            writers.append(lambda: gateway.publish("orders", list(islice(new_orders, PER_STEP))))
        if "redis" in arguments.what:
            from redis import Redis

            redis, redis_orders = Redis.from_url(arguments.redis), orders()
            writers.append(
                lambda: [
                    redis.xadd("orders", {"json": json.dumps(order)}, maxlen=100_000)
                    for order in islice(redis_orders, PER_STEP)
                ]
            )
        while time.monotonic() < end_s:
            for write in writers:
                write()
            time.sleep(STEP_S)


if __name__ == "__main__":
    main()
