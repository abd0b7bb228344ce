"""The CPU time that a published message costs the gateway, by size of request and by store.

Only the server's time counts, in user and system mode, so that other work of the machine has little
effect. The gateways run at once and are measured in turn. The engine alone has one keyed lane.
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
import psutil

from bench.engine import SPEC, engine_of, payloads
from tidegate.conflation.frame import Frame
from tidegate.keys.spec import record_key
from tidegate.keys.text.duration import SECOND

TIDEGATE = Path(sys.executable).with_name("tidegate")
NDJSON = {"Content-Type": "application/x-ndjson"}
ROUNDS = 5
# Messages of one round: enough that the clock ticks of 10 ms, in which Linux counts, do not matter.
MESSAGES = {1: 1_000, 100: 20_000, 1_000: 50_000, 5_000: 50_000}
SLICE = 1_000

Figure = tuple[str, float, str]


def figures() -> Iterator[Figure]:
    """Yield name, value and unit of each figure."""
    yield from _engine()
    yield from _requests()


def _engine() -> Iterator[Figure]:
    texts = payloads()
    key_of = record_key(SPEC)
    frames = [Frame(offset, text, key_of(text)) for offset, text in enumerate(texts, start=1)]
    times: list[float] = []
    for _ in range(ROUNDS):
        engine = engine_of([("conflation=1s", "", "subscribe")])
        began = time.process_time()
        for start in range(0, len(frames), SLICE):
            engine.publish("t", frames[start : start + SLICE], start * SECOND // len(frames))
        times.append(time.process_time() - began)
    yield "engine, 1 keyed lane", len(frames) / min(times), "messages/CPU s"


def _requests() -> Iterator[Figure]:
    texts = payloads()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
        stores = {"memory": ":memory:", "SQLite": f"{folder}/embedded"}
        servers = {name: held.enter_context(_gateway(data)) for name, data in stores.items()}
        for lines, count in MESSAGES.items():
            bodies = [b"\n".join(texts[at : at + lines]) for at in range(0, count, lines)]
            costs: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(1 + ROUNDS):  # the first one warms up
                for name, (client, process) in servers.items():
                    costs[name].append(_cpu_s(client, process, bodies) / count * 1e6)
            for name, found in costs.items():
                what = f"{name}, requests of {lines:,}"
                yield what, statistics.median(found[1:]), "us CPU/message"


@contextlib.contextmanager
def _gateway(data: str) -> Iterator[tuple[httpx2.Client, psutil.Process]]:
    """Start a gateway with a topic; yield a client of it, and its process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
    command = [str(TIDEGATE), "serve", "--data", data, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with httpx2.Client(base_url=address, timeout=60, trust_env=False) as client:
            client.put("/v1/topics/bench", json={"key": ["/tickerId"]}).raise_for_status()
            yield client, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(10)


def _cpu_s(client: httpx2.Client, server: psutil.Process, bodies: list[bytes]) -> float:
    """Return the server's CPU seconds for all requests, one after the other."""
    before = sum(server.cpu_times()[:2])
    for body in bodies:
        client.post("/v1/topics/bench/messages", content=body, headers=NDJSON).raise_for_status()
    return float(sum(server.cpu_times()[:2]) - before)
