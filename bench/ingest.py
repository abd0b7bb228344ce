"""The CPU time that a published message costs the gateway, by size of request and by store.

Only the server's time counts, in user and system mode, so that other processes have little effect.
A gateway for each store (memory, SQLite) runs, and they are measured alternately. The engine is
also measured alone, with one lane of a topic with a key.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator

from bench.engine import SPEC, engine_of, payloads
from bench.figure import Figure, median
from bench.servers.gateway import Gateway, gateway
from tidegate.conflation.frame import Frame
from tidegate.keys.spec import record_key
from tidegate.keys.text.duration import SECOND

ROUNDS = 5
# Messages in a request: messages in a round.
MESSAGES = {1: 1_000, 100: 20_000, 1_000: 50_000, 5_000: 50_000}
TARGET_REQUEST_MIN = 1_000  # requests of at least this many messages have a CPU target
CPU_US_PER_MESSAGE_MAX = {"memory": 2.0, "SQLite": 3.0}
MESSAGES_PER_CPU_S_MIN = 1_000_000
SLICE = 1_000


def figures() -> Iterator[Figure]:
    """Yield the speed of the engine, and the CPU time of a message over HTTP."""
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
    speed = len(frames) / min(times)
    what = "engine, 1 lane"
    yield Figure(what, speed, "messages/CPU s", at_least=MESSAGES_PER_CPU_S_MIN, scale="cpu")


def _requests() -> Iterator[Figure]:
    texts = payloads()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        stores = {"memory": ":memory:", "SQLite": f"{folder}/sqlite"}
        servers = {name: opened.enter_context(gateway(data=data)) for name, data in stores.items()}
        for server in servers.values():
            server.define()
        for lines, count in MESSAGES.items():
            bodies = [b"\n".join(texts[at : at + lines]) for at in range(0, count, lines)]
            costs: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(1 + ROUNDS):  # the first one warms up
                for name, server in servers.items():
                    costs[name].append(_cpu_s(server, bodies) / count * 1e6)
            for name, found in costs.items():
                most = CPU_US_PER_MESSAGE_MAX[name] if lines >= TARGET_REQUEST_MIN else None
                what = f"{name}, requests of {lines:,}"
                yield Figure(what, median(found[1:]), "us CPU/message", most, scale="cpu")


def _cpu_s(server: Gateway, bodies: list[bytes]) -> float:
    """Return the server's CPU seconds for all requests, sent one at a time."""
    before = server.process.cpu_s()
    for body in bodies:
        server.publish(body)
    return server.process.cpu_s() - before
