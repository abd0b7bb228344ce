"""Publish back-pressure: a large publish waits until every slow reader's queue has room.

For a bounded time: a reader that takes nothing meanwhile is not waited for any more.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.sessions.session import QueueLimits

# How long a publish waits for slow readers: for one slice, and in all. A reader that it has stopped
# waiting for counts again once it has taken something.
PATIENCE_S = 1.0
PATIENCE_S_PER_REQUEST = 5.0


class PublishBackpressure:
    """The sessions for which a publish waits, and those for which it has stopped waiting.

    Args:
        engine: knows which queues are half full.
        limits: what a session may queue, unless it asked for less.
    """

    def __init__(self, engine: Engine, limits: QueueLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._taken = asyncio.Event()
        self._given_up: set[str] = set()
        self._tight: set[str] = set()

    def note_limits(self, session: str, limits: QueueLimits) -> None:
        """Record whether a session may queue less than the others."""
        most = self._limits
        if limits.messages_max < most.messages_max or limits.bytes_max < most.bytes_max:
            self._tight.add(session)
        else:
            self._tight.discard(session)

    def taken(self, session: str) -> None:
        """Wake the publishers: a session has taken something."""
        self._given_up.discard(session)
        self._taken.set()

    def all_taken(self, sessions: Iterable[str]) -> None:
        """Wake the publishers: each of these sessions has taken something."""
        if self._given_up:  # mostly empty, while a cohort has many sessions
            self._given_up.difference_update(sessions)
        self._taken.set()

    def forget(self, session: str) -> None:
        """Forget a closed session."""
        self._tight.discard(session)
        self.taken(session)

    def least_limits(self, topic: str) -> QueueLimits:
        """Return the lowest limits among the sessions that queue messages of this topic."""
        if not self._tight:  # the usual case, at each publish
            return self._limits
        found = [self._limits, *self._engine.limits_at(topic, self._tight)]
        messages_max = min(limits.messages_max for limits in found)
        return QueueLimits(messages_max, min(limits.bytes_max for limits in found))

    async def wait(self, topic: str, seconds_max: float) -> float:
        """Wait until every session has room for another slice; return the seconds waited."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            async with asyncio.timeout(seconds_max):
                while self._crowded(topic):
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:  # one frozen reader must not slow down every publisher for ever
            self._given_up |= self._crowded(topic)
        return loop.time() - began_at

    def _crowded(self, topic: str) -> set[str]:
        return self._engine.over_half_full(topic) - self._given_up


SLICE_MESSAGES_MAX = 1_000
# The unit is a filter that is tried on a message, in a third of a microsecond or more. A lane that
# combines messages and a board of groups cost as much as many filters.
SLICE_COST_MAX = 3_000
_PAYLOAD = attrgetter("payload")


def split_publish(
    frames: Sequence[Frame], limits: QueueLimits, message_cost: int = 1
) -> Iterator[Sequence[Frame]]:
    """Split a publish into slices of at most 1,000 messages and half a session's queue.

    Streams write between two slices. Slices are smaller where `message_cost` is high.
    """
    messages_max, bytes_max = slice_limits(limits, message_cost)
    # In C, as a loop over the messages would cost as much as their frames did.
    ends_bytes = list(accumulate(map(len, map(_PAYLOAD, frames)), initial=0))
    start = 0
    while start < len(frames):
        fitting = bisect_right(ends_bytes, ends_bytes[start] + bytes_max) - 1
        end = max(start + 1, min(start + messages_max, fitting))
        yield frames[start:end]
        start = end


def slice_limits(limits: QueueLimits, message_cost: int) -> tuple[int, int]:
    """Return the most messages and bytes that `split_publish` leaves together."""
    affordable = SLICE_COST_MAX // max(1, message_cost)
    messages_max = max(1, min(SLICE_MESSAGES_MAX, limits.messages_max // 2, affordable))
    return messages_max, limits.bytes_max // 2
