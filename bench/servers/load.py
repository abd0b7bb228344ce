"""The load client: one process that holds the connections of all clients of a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.servers.process import LOAD_CORE, Process, built, running, waited_for

OPENING = 512  # clients on their way at once: fewer than any server's backlog, so none is dropped


class Sample(NamedTuple):
    """An event's arrival at a client, with the number that it holds."""

    client: int
    number: int
    at_ns: int


class Counted(NamedTuple):
    """What has come so far, at all clients."""

    events: int
    bytes: int
    closed: int


@dataclass(slots=True)
class Load:
    """Clients that are connected, and count what comes.

    Args:
        process: the program in `native/load.c`.
        opening_s: from the first connection until the last client was ready.
    """

    process: Process
    opening_s: float

    def counted(self) -> Counted:
        """Return what has come so far."""
        self.process.tell("?")
        return Counted(*map(int, self.process.read().split()))

    def arrived(self, events: int) -> None:
        """Wait until so many events have come.

        Raises:
            TimeoutError: they never do.
        """
        waited_for(lambda: self.counted().events >= events, f"event {events:,}")

    def samples(self) -> Iterator[Sample]:
        """Yield the arrivals at the sampled clients since the last call."""
        self.process.tell("samples")
        while (line := self.process.read()) != "end":
            yield Sample(*map(int, line.split()))

    def slow_down(self, bytes_a_second: int) -> None:
        """Let the slow clients take no more than this from now on; 0 freezes them."""
        self.process.tell(f"slow {bytes_a_second}")
        self.process.read()


@contextlib.contextmanager
def load_on(
    port: int,
    clients: int,
    request: str,
    marker: str | bytes,
    ready: str | bytes,
    *,
    opening: int = OPENING,
    sampled_every: int = 0,
    slow_every: int = 0,
) -> Iterator[Load]:
    """Connect clients to a port of the loopback address; yield once each has had `ready`.

    Args:
        port: of the server.
        clients: how many.
        request: what each of them sends once.
        marker: what each event has once; a number follows it if clients are sampled.
        ready: what a client has received once it listens; not longer than the marker.
        opening: how many are on their way at once at most.
        sampled_every: of one client in so many the arrivals are noted; 0 for none.
        slow_every: one client in so many can be slowed down; 0 for none.

    Raises:
        RuntimeError: the server has closed connections.
    """
    words = [_hex(request), _hex(marker), _hex(ready), opening, sampled_every, slow_every]
    command: list[str | Path] = [built("load"), str(port), str(clients), *map(str, words)]
    with running(command, (LOAD_CORE,)) as process:
        _, took_ns, lost = process.read().split()
        if lost != "0":
            raise RuntimeError(f"{lost} of {clients:,} connections were closed at once")
        yield Load(process, int(took_ns) / 1e9)


def _hex(text: str | bytes) -> str:
    return (text.encode() if isinstance(text, str) else text).hex()
