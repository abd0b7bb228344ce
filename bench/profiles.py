"""Profiles: the functions that the gateway's CPU time goes to, at the work of the other suites.

A function's share is its own, system calls included, without the functions in Python that it calls.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import connections, dashboard, fanout
from bench.engine import payloads
from bench.figure import Figure
from bench.servers.gateway import Gateway, gateway
from bench.servers.load import load_on
from bench.servers.peers import MARKER, message
from bench.servers.process import waited_for

SHOWN = 8  # functions of a profile
FLUSHES = 1_000
FANOUT_CLIENTS = 500
OPENINGS = 2_000
DASHBOARD_S = 10.0
BULK = 1_000
BULK_MESSAGES = 200_000
TIDEGATE_SAMPLED = (sys.executable, "-m", "bench.servers.sampled")


def figures() -> Iterator[Figure]:
    """Yield the shares of the busiest functions."""
    for rows in fanout.TARGET_RATIO_TO_C:
        what = f"{FANOUT_CLIENTS} clients, {rows} row{'s' if rows > 1 else ''}"
        yield from profile(what, partial(_fanout, rows=rows))
    yield from profile("dashboard", _dashboard)
    yield from profile("opening a subscription", _openings)
    yield from profile(f"requests of {BULK:,}", _bulk)


Work = Callable[[ExitStack, Gateway], Callable[[], None]]


def profile(what: str, prepare: Work) -> Iterator[Figure]:
    """Yield the shares of one work; `prepare` returns what is to be profiled."""
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        found = Path(folder, "profile")
        server = held.enter_context(gateway(command=(*TIDEGATE_SAMPLED, str(found))))
        server.define()
        work = prepare(held, server)
        server.process.popen.send_signal(signal.SIGUSR1)
        work()
        server.process.popen.send_signal(signal.SIGUSR2)
        waited_for(found.exists, "the profile")
        lines = [line.split(" ", 1) for line in found.read_text().splitlines()]
    samples = sum(int(count) for count, _ in lines)
    for count, function in lines[:SHOWN]:
        yield Figure(f"{what}: {function}", 100 * int(count) / samples, "% of its CPU")


def _fanout(held: ExitStack, server: Gateway, *, rows: int) -> Callable[[], None]:
    request = server.request(f"conflation={fanout.INTERVAL}")
    load = load_on(server.port, FANOUT_CLIENTS, request, MARKER, "event: hello")
    clients = held.enter_context(load)

    def work() -> None:
        body = b"\n".join(map(message, range(rows)))
        for number in range(1, FLUSHES + 1):
            server.publish(body)
            clients.arrived(number * FANOUT_CLIENTS * rows)

    return work


def _dashboard(held: ExitStack, server: Gateway) -> Callable[[], None]:
    request = server.request("conflation=1s")
    load = load_on(server.port, dashboard.CLIENTS, request, dashboard.MARKER, dashboard.READY)
    job = dashboard.Job(server, held.enter_context(load))
    job.run(dashboard.WARMING_S)
    return lambda: job.run(DASHBOARD_S)


def _openings(held: ExitStack, server: Gateway) -> Callable[[], None]:
    request = server.request(connections.OPTIONS)

    def opened(clients: int) -> None:
        load = load_on(server.port, clients, request, connections.MARKER, connections.READY)
        held.enter_context(load)

    opened(connections.WARMING_CLIENTS)
    time.sleep(connections.SETTLE_S)
    return lambda: opened(OPENINGS)


def _bulk(held: ExitStack, server: Gateway) -> Callable[[], None]:
    texts = payloads()
    bodies = [b"\n".join(texts[at : at + BULK]) for at in range(0, len(texts) - BULK + 1, BULK)]

    def work() -> None:
        for number in range(BULK_MESSAGES // BULK):
            server.publish(bodies[number % len(bodies)])

    return work
