"""The cost of storing: bulk publishing into the SQLite store and into one in memory.

All gateways run at once and are measured in turn, so that other load of the machine affects each.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator

from bench.engine import payloads
from bench.figure import Figure, median
from bench.servers.gateway import NDJSON, TOPIC, Gateway, gateway

REQUEST_MESSAGES = 1_000
ROUNDS = 10


def figures() -> Iterator[Figure]:
    """Yield the speed of each store, and its share of memory's."""
    texts = payloads()
    bodies = [
        b"\n".join(texts[start : start + REQUEST_MESSAGES])
        for start in range(0, len(texts), REQUEST_MESSAGES)
    ]
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            "memory": (":memory:", "process", "processed"),
            "embedded": (f"{folder}/process", "process", "persisted"),
            "embedded, durability power": (f"{folder}/power", "power", "persisted"),
        }
        with contextlib.ExitStack() as held:
            servers = {
                name: (held.enter_context(gateway(data=data, durability=durability)), ack)
                for name, (data, durability, ack) in stores.items()
            }
            for server, _ in servers.values():
                server.define()
            seconds: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(1 + ROUNDS):  # the first one warms up
                for name, (server, ack) in servers.items():
                    seconds[name].append(_publish(server, ack, bodies))
    medians = {name: median(taken[1:]) for name, taken in seconds.items()}
    for name, median_s in medians.items():
        yield Figure(f"bulk publish, {name}", len(texts) / median_s, "messages/s")
        if name != "memory":
            yield Figure(f"{name}: share of memory's", medians["memory"] / median_s * 100, "%")


def _publish(server: Gateway, ack: str, bodies: list[bytes]) -> float:
    """Return the seconds that all requests take, one after the other."""
    path, began = f"/v1/topics/{TOPIC}/messages", time.perf_counter()
    for body in bodies:
        answer = server.client.post(path, content=body, headers=NDJSON, params={"ack": ack})
        answer.raise_for_status()
    return time.perf_counter() - began
