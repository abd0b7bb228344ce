"""Fan-out: the CPU time of one event at one of many subscribers, compared with peers.

Every server gets the same work in the same run, on the same core: so many clients, so many messages
a flush, events of 150 bytes as SSE. An event counts when it has arrived. The time of publishing is
part of it where a server has to take what it publishes over a connection. Ratios hold from machine
to machine, microseconds do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from bench.figure import Figure, median
from bench.servers.load import Load, load_on
from bench.servers.peers import Server, Started, available, c_writer, tidegate
from bench.servers.process import files_allow

CLIENTS = (100, 500, 2_000, 5_000, 10_000)
ROWS = (1, 10, 100)
TARGET_CLIENTS = (500, 5_000)
TARGET_RATIO_TO_C = {1: 1.5, 10: 1.7}  # by rows; relative to a writer in C
ROUNDS = 5
EVENTS = 100_000  # of one server in a round: enough to see the cost of one
FLUSHES = (1, 40)  # of a round, at least and at most
ROUND_S = 2.0  # no further flush after this long
SETTLE_S = 0.5
# A flush that follows the last one finds warm caches. A conflated one waits for its interval first:
# after 1 ms they are as warm, after 10 ms they are cold, and the C writer then pays a third more,
# too. So flushes follow each other with the short interval, and with the long one every server gets
# its flushes at one pace, which all of them can keep.
INTERVAL = "1ms"
PACED_INTERVAL = "10ms"
PACED = {500: (1, 10)}  # rows, by clients
PACE_S = 0.025
LOAD_IS_FULL = 0.9
OURS = ("Tidegate, conflated", "Tidegate, pass-through")

NEEDED = ("C writer", *OURS)


@dataclass(slots=True)
class Measured:
    """A server with its clients, and what was measured."""

    server: Server
    load: Load
    flush_us: dict[int, float]
    event_us: list[float] = field(default_factory=list)
    load_share: float = 0.0
    bytes_each: float = 0.0

    def round(self, clients: int, rows: int, pace_s: float) -> None:
        """Publish some flushes, wait for each to arrive everywhere, and note the cost.

        `pace_s`: the least time from the begin of one to that of the next.
        """
        before = self.load.counted()
        if not self.event_us:  # what is made at the first time is made
            self.server.flush(rows)
            self.load.arrived(before.events + clients * rows)
        time.sleep(SETTLE_S)
        before = self.load.counted()
        began, began_us, began_load_s = time.monotonic(), self._cpu_us(), self._load_s()
        events = flushes = 0
        least, most = FLUSHES
        wanted = min(most, max(least, EVENTS // (clients * rows)))
        while flushes < wanted and (flushes < least or time.monotonic() < began + ROUND_S):
            self.server.flush(rows)
            flushes += 1
            events = flushes * clients * rows
            self.load.arrived(before.events + events)
            time.sleep(max(0.0, began + flushes * pace_s - time.monotonic()))
        self.event_us.append((self._cpu_us() - began_us) / events)
        self.load_share = (self._load_s() - began_load_s) / (time.monotonic() - began)
        after = self.load.counted()
        self.bytes_each = (after.bytes - before.bytes) / events
        if after.events != before.events + events or after.closed:
            raise RuntimeError(f"{after} after {before}, and {events} events were expected")

    def _cpu_us(self) -> float:
        return self.server.process.cpu_s() * 1e6

    def _load_s(self) -> float:
        return self.load.process.cpu_s()


def figures(*, peers: bool = True) -> Iterator[Figure]:
    """Yield each server's CPU time of an event and our ratios to it, by clients and rows.

    Args:
        peers: whether all peers run; without them only the C writer does, at the clients of which
            something is wanted.
    """
    kinds: dict[str, Callable[[], Started]] = {"C writer": c_writer}
    if peers:
        kinds, left_out = available()
        for sentence in left_out:
            yield Figure(sentence, 0, "")
    for clients in CLIENTS if peers else TARGET_CLIENTS:
        if not files_allow(clients):
            continue
        yield from _compared(kinds | _ours(INTERVAL), clients, ROWS)
        if clients in PACED:
            yield from _compared(kinds | _ours(PACED_INTERVAL), clients, PACED[clients], PACE_S)


def _ours(interval: str) -> dict[str, Callable[[], Started]]:
    return {
        name: partial(tidegate, options)
        for name, options in zip(OURS, (f"conflation={interval}", "conflation=none"), strict=True)
    }


def _compared(
    kinds: dict[str, Callable[[], Started]],
    clients: int,
    row_counts: Collection[int],
    pace_s: float = 0.0,
) -> Iterator[Figure]:
    with ExitStack() as held:
        every: dict[str, Measured] = {}
        for name, start in kinds.items():
            server = held.enter_context(start())
            alone_us = {rows: _flush_us(server, rows) for rows in row_counts}
            load = load_on(server.port, clients, server.request, server.marker, server.ready)
            every[name] = Measured(server, held.enter_context(load), alone_us)
        time.sleep(SETTLE_S)
        for rows in row_counts:
            # In turn, so that other load of the machine affects each server alike.
            for _ in range(ROUNDS):
                for name, measured in list(every.items()):
                    try:
                        measured.round(clients, rows, pace_s)
                    except (OSError, RuntimeError) as error:
                        if name in NEEDED:
                            raise
                        # It has lost events or clients: there is nothing to measure any more.
                        del every[name]
                        where = f"{clients:,} clients, from {rows} rows on"
                        yield Figure(f"{where}, {name} is left out: {error}", 0, "")
            yield from _figures_of(every, clients, rows, pace_s)
            for measured in every.values():
                measured.event_us.clear()


def _flush_us(server: Server, rows: int) -> float:
    """Return the CPU time of publishing to nobody."""
    repeats = 10
    server.flush(rows)
    began_s = server.process.cpu_s()
    for _ in range(repeats):
        server.flush(rows)
    return (server.process.cpu_s() - began_s) / repeats * 1e6


def _figures_of(
    every: dict[str, Measured], clients: int, rows: int, pace_s: float
) -> Iterator[Figure]:
    where = f"{clients:,} clients, {rows} row{'s' if rows > 1 else ''}"
    if pace_s:
        where += f" each {1e3 * pace_s:.0f} ms"
    costs = {name: median(measured.event_us) for name, measured in every.items()}
    for name, measured in every.items():
        low, high = min(measured.event_us), max(measured.event_us)
        published_us = measured.flush_us[rows] / (clients * rows)
        notes = [
            f"{low:.2f} to {high:.2f}",
            f"{costs[name] / costs['C writer']:.2f} x C",
            f"{published_us:.2f} of it publishing",
            f"{measured.bytes_each:.0f} B",
        ]
        if measured.load_share > LOAD_IS_FULL:
            notes.append("the load client was full")
        yield Figure(f"{where}: {name}", costs[name], "us CPU/event", note="; ".join(notes))
    for name in OURS:
        for peer, most in _wanted(clients, rows).items():
            if peer in costs:
                what = f"{where}: {name}, by {peer}"
                yield Figure(what, costs[name] / costs[peer], "x", most, scale="ratio")


def _wanted(clients: int, rows: int) -> dict[str, float]:
    """Return the most that an event may cost here, as a ratio to a peer's."""
    wanted: dict[str, float] = {"nchan": 0.2 if rows == 10 else 1.0}
    if clients in TARGET_CLIENTS and rows in TARGET_RATIO_TO_C:
        wanted["C writer"] = TARGET_RATIO_TO_C[rows]
    if rows == 10:
        wanted["Redis"] = 1.0
    return wanted
