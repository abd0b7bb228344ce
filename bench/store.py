"""The cost of storing: bulk publishing into the embedded store, beside a store in memory.

All gateways run at once and are measured in turn, so that other load of the machine affects each.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

from bench.engine import payloads

TIDEGATE = Path(sys.executable).with_name("tidegate")
REQUEST_MESSAGES = 1_000
ROUNDS = 10
NDJSON = {"Content-Type": "application/x-ndjson"}


def figures() -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit of each figure."""
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
            clients = {
                name: (held.enter_context(_gateway(where, durability)), ack)
                for name, (where, durability, ack) in stores.items()
            }
            seconds: dict[str, list[float]] = {name: [] for name in clients}
            for _ in range(1 + ROUNDS):  # the first one warms up
                for name, (client, ack) in clients.items():
                    seconds[name].append(_publish(client, ack, bodies))
    medians = {name: statistics.median(taken[1:]) for name, taken in seconds.items()}
    for name, median_s in medians.items():
        yield f"bulk publish, {name}", len(texts) / median_s, "messages/s"
        if name != "memory":
            yield f"{name}: share of memory's", medians["memory"] / median_s * 100, "%"


@contextlib.contextmanager
def _gateway(where: str, durability: str) -> Iterator[httpx2.Client]:
    """Start a gateway with a topic, and yield a client of it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
    environment["TIDEGATE_DURABILITY"] = durability
    server = subprocess.Popen(
        [TIDEGATE, "serve", "--data", where, "--port", "0"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with httpx2.Client(base_url=address, timeout=60, trust_env=False) as client:
            client.put("/v1/topics/bench", json={"key": ["/tickerId"]}).raise_for_status()
            yield client
    finally:
        server.terminate()
        server.wait(10)


def _publish(client: httpx2.Client, ack: str, bodies: list[bytes]) -> float:
    """Return the seconds that all requests take, one after the other."""
    began = time.perf_counter()
    for body in bodies:
        answer = client.post(
            "/v1/topics/bench/messages", content=body, headers=NDJSON, params={"ack": ack}
        )
        answer.raise_for_status()
    return time.perf_counter() - began
