"""Fan-out: which stream writes when, and one flush to the streams of all its members."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable

from tidegate.conflation.lanes.member import Member
from tidegate.conflation.outputs import SharedFlush

# How long streams may write before the loop looks at everything else; asked once in SLICE streams,
# because the clock costs as much as a short write.
TURN_S = 0.005
SLICE = 32


class StreamScheduler:
    """Calls the streams that have something to write, and those whose time has come.

    A flush wakes thousands of streams at once. They write in turns of a few milliseconds, so that
    other requests wait for a turn and not for the flush. Times are kept in one heap with one timer:
    a stream has no timer of its own.
    """

    def __init__(self) -> None:
        self._ready: dict[Callable[[], None], None] = {}
        self._is_called = False
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = (
            itertools.count()
        )  # streams that are due together have no order of their own
        self._timer: asyncio.TimerHandle | None = None

    def call_soon(self, stream: Callable[[], None]) -> None:
        """Call a stream in the loop's next turn, once however often this is asked."""
        self._ready[stream] = None
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def call_at(self, due_s: float, stream: Callable[[], None]) -> None:
        """Call a stream at a time of the loop's clock, in seconds."""
        heapq.heappush(self._due, (due_s, next(self._numbers), stream))
        if self._due[0][2] is stream:
            self._arm()

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + TURN_S
        ready, self._ready = self._ready, {}
        streams = iter(ready)
        for stream in streams:
            stream()
            for other in itertools.islice(streams, SLICE - 1):
                other()
            if loop.time() > end:
                break
        rest = dict.fromkeys(streams)
        rest.update(self._ready)
        self._ready = rest
        self._is_called = bool(rest)
        if rest:
            loop.call_soon(self._turn)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._due[0][0], self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            self.call_soon(heapq.heappop(self._due)[2])
        self._arm()


MEMBERS_AT_ONCE = 16


Offer = Callable[[SharedFlush, Member, float], bool]
"""Has a member's stream write a flush, at a time of the loop's clock; False if it did not."""


class FlushWriter:
    """Writes one flush to the streams of its members, some in each call, until all have it.

    Args:
        flush: what is written.
        offers: the members, and what offers it to the stream of each.
        sent: is called after some members, with how many were written to and how long that took, in
            seconds.
        streams: calls again while members are left.
    """

    __slots__ = ("_flush", "_offers", "_sent", "_streams")

    def __init__(
        self,
        flush: SharedFlush,
        offers: Iterable[tuple[Offer, Member]],
        sent: Callable[[int, float], None],
        streams: StreamScheduler,
    ) -> None:
        self._flush = flush
        self._offers = iter(offers)
        self._sent = sent
        self._streams = streams

    def __call__(self) -> None:
        """Write to the next members."""
        began_s = asyncio.get_running_loop().time()
        offers = list(itertools.islice(self._offers, MEMBERS_AT_ONCE))
        written = sum(offer(self._flush, member, began_s) for offer, member in offers)
        if len(offers) == MEMBERS_AT_ONCE:
            self._streams.call_soon(self)
        self._sent(written, asyncio.get_running_loop().time() - began_s)
