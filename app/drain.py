"""The drain: whom a large publish waits for, so that no slice of it breaches a healthy queue."""

from __future__ import annotations

import asyncio

from conflation.engine import Engine
from conflation.sessions.session import QueueLimits

# How long a request of several slices waits for streams that are behind but take what they can,
# for one and in all. One that was given up is not waited for before it has taken something.
PATIENCE_S = 1.0
PATIENCE_S_PER_REQUEST = 5.0


class Drain:
    """Sessions that are behind: those waited for, and those that were given up.

    Args:
        engine: knows whose queues are full.
        limits: what a session may have waiting, unless it asked for less.
    """

    def __init__(self, engine: Engine, limits: QueueLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._taken = asyncio.Event()
        self._given_up: set[str] = set()
        self._tight: set[str] = set()

    def note_limits(self, session: str, limits: QueueLimits) -> None:
        """Which sessions may queue less than others do."""
        most = self._limits
        if limits.messages_max < most.messages_max or limits.bytes_max < most.bytes_max:
            self._tight.add(session)
        else:
            self._tight.discard(session)

    def taken(self, session: str) -> None:
        """A session took something."""
        self._given_up.discard(session)
        self._taken.set()

    def forget(self, session: str) -> None:
        """A session is over."""
        self._tight.discard(session)
        self.taken(session)

    def least_limits(self, topic: str) -> QueueLimits:
        """What every session that queues this topic's messages may have waiting."""
        found = [self._limits, *self._engine.limits_at(topic, self._tight)]
        messages_max = min(limits.messages_max for limits in found)
        return QueueLimits(messages_max, min(limits.bytes_max for limits in found))

    async def wait(self, topic: str, seconds_max: float) -> float:
        """Wait until every session has room for another slice; returns for how long."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            async with asyncio.timeout(seconds_max):
                while self._crowded(topic):
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:
            self._given_up |= self._crowded(topic)
        return loop.time() - began_at

    def _crowded(self, topic: str) -> set[str]:
        return self._engine.crowded(topic) - self._given_up
