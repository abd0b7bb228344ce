"""Throughput over `serve --workers N`: events that arrive in a second, and what they cost.

All workers share an address and a Redis, and no process is bound to a core. The load client needs
a part of the same cores, so on a machine with two of them two workers cannot be twice as fast.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure, median
from bench.servers.gateway import Gateway, gateway
from bench.servers.load import Load, load_on
from bench.servers.peers import MARKER, message
from bench.servers.process import Process, free_port, listens, running, waited_for

WORKERS = (1, 2, 4)
CLIENTS = 500
ROWS = 100
FLUSHES = 60
IN_FLIGHT = 8  # flushes on their way at once: enough that nobody waits for the publisher
ROUNDS = 3
OPTIONS = "conflation=none"
SETTLE_S = 2.0


class Round(NamedTuple):
    """What a round has cost."""

    events_a_second: float
    workers_us: float
    redis_us: float
    load_percent: float


@dataclass(slots=True)
class Cluster:
    """Workers at one address, their Redis and their clients."""

    workers: Gateway
    redis: Process
    load: Load

    def round(self) -> Round:
        """Publish some flushes, a few of them on their way at once, until all have arrived."""
        body = b"\n".join(map(message, range(ROWS)))
        before, began = self.load.counted().events, time.monotonic()
        processes = (self.workers.process, self.redis, self.load.process)
        cpu_s = [process.cpu_s() for process in processes]
        for number in range(1, FLUSHES + 1):
            self.workers.publish(body)
            self.load.arrived(before + (number - IN_FLIGHT) * CLIENTS * ROWS)
        events = FLUSHES * CLIENTS * ROWS
        self.load.arrived(before + events)
        seconds = time.monotonic() - began
        used = [process.cpu_s() - at for process, at in zip(processes, cpu_s, strict=True)]
        each_us = [used_s / events * 1e6 for used_s in used]
        return Round(events / seconds, each_us[0], each_us[1], used[2] / seconds * 100)


def figures() -> Iterator[Figure]:
    """Yield the speed and the cost of an event by the number of workers, and the ratio to one."""
    if shutil.which("redis-server") is None:
        yield Figure("Several workers share a Redis: install redis-server.", 0, "")
        return
    speeds: dict[int, float] = {}
    for workers in WORKERS:
        with ExitStack() as held:
            cluster = _cluster(held, workers)
            cluster.round()  # warms up
            rounds = [cluster.round() for _ in range(ROUNDS)]
        middle = Round(*(median(column) for column in zip(*rounds, strict=True)))
        speeds[workers] = middle.events_a_second
        name = f"{workers} worker{'s' if workers > 1 else ''}"
        note = f"the load client took {middle.load_percent:.0f} % of a core"
        yield Figure(f"{name}: events that arrive", middle.events_a_second, "/s", note=note)
        note = f"{middle.redis_us:.3f} more in Redis"
        cost = middle.workers_us
        yield Figure(f"{name}: all workers", cost, "us CPU/event", note=note, scale="cpu")
        if workers > 1:
            gain, note = speeds[workers] / speeds[1], f"{os.cpu_count()} cores in all"
            yield Figure(f"{name}: speed, by that of 1", gain, "x", note=note)


def _cluster(held: ExitStack, workers: int) -> Cluster:
    folder, port = Path(held.enter_context(tempfile.TemporaryDirectory())), free_port()
    # What a gateway asks of a Redis that keeps its messages: append-only files.
    options = ["--port", str(port), "--dir", str(folder), "--save", "", "--appendonly", "yes"]
    redis = held.enter_context(running(["redis-server", *options], cores=None))
    waited_for(partial(listens, port), "Redis")
    words = ("--redis", f"redis://127.0.0.1:{port}", "--workers", str(workers))
    server = held.enter_context(gateway(*words, cores=None))
    server.define()
    time.sleep(SETTLE_S)  # each worker learns of the topic
    load = load_on(server.port, CLIENTS, server.request(OPTIONS), MARKER, "event: hello")
    return Cluster(server, redis, held.enter_context(load))
