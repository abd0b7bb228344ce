"""Figures that a gateway counts outside the engine, for its metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate.keys.text.duration import SECOND

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds for times: from half a millisecond to the write time-out's default."""

BYTES = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
"""Upper bounds for sizes: from a single value to the most that is written at once."""


class Histogram:
    """Counts by upper bound, and a sum. Belongs to one thread; a note costs a bisection.

    Args:
        bounds: rising upper bounds, each of its own bucket; above the last there is one more.
    """

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = bounds
        # By bucket and not cumulative: a note then changes one count, and a scrape adds them up.
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float, *, times: int = 1) -> None:
        """Count a value, once or several times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """The number of counted values."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each upper bound, infinity last, with the count at or below it."""
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            yield bound, below


@dataclass(slots=True)
class Counters:
    """Figures of one gateway, outside the engine.

    Args:
        flush_lateness: the time from the earliest planned flush until all due rows were written.
        publish: the time from a request's parsed items until store and engine have them.
        append: the store's part of that.
        write: the time from a stream's bytes until its socket has room for more.
        write_bytes: what is written to a stream at once.
        store_failures: writes that the store could not do.
        checkpointed_ms: wall time at which all that had been published was in checkpoints.
        auto_changes: steps of `conflation=auto`, by whether the interval became longer.
        left: sessions whose peer closed the connection without ending them.
    """

    flush_lateness: Histogram = field(default_factory=Histogram)
    publish: Histogram = field(default_factory=Histogram)
    append: Histogram = field(default_factory=Histogram)
    write: Histogram = field(default_factory=Histogram)
    write_bytes: Histogram = field(default_factory=lambda: Histogram(BYTES))
    store_failures: int = 0
    checkpointed_ms: int | None = None
    auto_changes: Counter[str] = field(default_factory=Counter)
    left: int = 0

    def wrote_alike(self, streams: int, size_bytes: int, seconds: float) -> None:
        """Count a text that went to several streams, one after the other, in this time."""
        self.write.note(seconds / streams, times=streams)
        self.write_bytes.note(size_bytes, times=streams)

    def wrote(self, size_bytes: int, duration_ns: int) -> None:
        """Count what a stream wrote at once, and how long its socket took to have room again."""
        self.write_bytes.note(size_bytes)
        self.write.note(duration_ns / SECOND)


@dataclass(slots=True)
class LoopFigures:
    """Figures of an event loop's iterations: all that it does between two polls for events.

    Args:
        iterations: how long each took.
        held: how many took longer than `loop_held_max`.
    """

    iterations: Histogram = field(default_factory=Histogram)
    held: int = 0


CONNECTIONS: Final = "connections"
ADDRESS: Final = "address"
"""What there was no more room in for a connection that was turned away."""


@dataclass(slots=True)
class ConnectionFigures:
    """Figures of a server's connections and its event loop, for the metrics.

    Args:
        connections_max: served at once.
        connections: open now.
        ended: closed since the start.
        refused_by: turned away since the start, by what there was no more room in: all
            `connections`, or those of one `address`.
        given_up: cut since the start because their peers took nothing for too long.
        loop_lag: how much later than asked for the loop calls.
        loop: what the loop's watchdog counts; zeros where none watches.
    """

    connections_max: int
    connections: int = 0
    ended: int = 0
    refused_by: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    loop_lag: Histogram = field(default_factory=Histogram)
    loop: LoopFigures = field(default_factory=LoopFigures)

    @property
    def refused(self) -> int:
        """Turned away since the start for want of room."""
        return self.refused_by.total()
