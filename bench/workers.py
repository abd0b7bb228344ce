"""Throughput over `serve --workers N`: events that arrive in a second, and what they cost.

All workers share an address and a Redis, and no process is bound to a core. The load client needs
a part of the same cores, so on a machine with two of them two workers cannot be twice as fast.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.figure import Figure, median
from bench.servers.gateway import gateway
from bench.servers.load import load_on
from bench.servers.peers import MARKER, message
from bench.servers.process import free_port, listens, running, waited_for

WORKERS = (1, 2, 4)
CLIENTS = 500
ROWS = 100
FLUSHES = 60
IN_FLIGHT = 8  # flushes on their way at once: enough that nobody waits for the publisher
ROUNDS = 3
OPTIONS = "conflation=none"
SETTLE_S = 2.0


def figures() -> Iterator[Figure]:
    """Yield the speed and the cost of an event by the number of workers, and the ratio to one."""
    speeds: dict[int, float] = {}
    for workers in WORKERS:
        with ExitStack() as held:
            folder = held.enter_context(tempfile.TemporaryDirectory())
            port = free_port()
            # What a gateway asks of a Redis that keeps its messages: append-only files.
            options = ["--port", str(port), "--dir", folder, "--save", "", "--appendonly", "yes"]
            redis = held.enter_context(running(["redis-server", *options], cores=None))
            waited_for(lambda port=port: listens(port), "Redis")  # type: ignore[misc]  # mypy cannot type its default
            address = f"redis://127.0.0.1:{port}"
            arguments = ("--redis", address, "--workers", str(workers))
            server = held.enter_context(gateway(*arguments, cores=None))
            server.define()
            time.sleep(SETTLE_S)
            request = server.request(OPTIONS)
            load = held.enter_context(
                load_on(server.port, CLIENTS, request, MARKER, "event: hello")
            )
            body = b"\n".join(map(message, range(ROWS)))
            found: list[tuple[float, float, float, float]] = []
            for _ in range(1 + ROUNDS):  # the first one warms up
                before = load.counted().events
                cpu_s, redis_s = server.process.cpu_s(), redis.cpu_s()
                load_s, began = load.process.cpu_s(), time.monotonic()
                for number in range(1, FLUSHES + 1):
                    server.publish(body)
                    load.arrived(before + (number - IN_FLIGHT) * CLIENTS * ROWS)
                load.arrived(before + FLUSHES * CLIENTS * ROWS)
                events, seconds = FLUSHES * CLIENTS * ROWS, time.monotonic() - began
                found.append((
                    events / seconds,
                    (server.process.cpu_s() - cpu_s) / events * 1e6,
                    (redis.cpu_s() - redis_s) / events * 1e6,
                    (load.process.cpu_s() - load_s) / seconds * 100,
                ))  # fmt: skip
            speed, cpu_us, redis_us, busy = (
                median(column) for column in zip(*found[1:], strict=True)
            )
            name = f"{workers} worker{'s' if workers > 1 else ''}"
            note = f"the load client took {busy:.0f} % of a core"
            yield Figure(f"{name}: events that arrive", speed, "/s", note=note)
            note = f"{redis_us:.3f} more in Redis"
            yield Figure(f"{name}: all workers", cpu_us, "us CPU/event", note=note, scale="cpu")
            speeds[workers] = speed
            if workers > 1:
                yield Figure(f"{name}: speed, by that of 1", speed / speeds[1], "x",
                             note=f"{os.cpu_count()} cores in all")  # fmt: skip
