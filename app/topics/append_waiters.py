"""Writers that wait until the bus has brought back what they stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tidegate.app.refusals import Unavailable
from tidegate.app.stores.store import PastTime
from tidegate.app.streams.driver import Driver
from tidegate.conflation.errors import TopicUnknown
from tidegate.keys.text.bookmark import Bookmark

PATIENCE_S = 10.0
"""Longer than back-pressure may delay a publish (`app/streams/backpressure.py`)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    epoch: str
    offset: int
    arrived: asyncio.Future[None]


class AppendWaiters:
    """Writers that wait until the engine has what they stored.

    `shared_head` returns the last offset that the shared store has of a topic; given a time that
    is past, what is stored from then on gets a later one.
    """

    def __init__(self, driver: Driver) -> None:
        self.shared_head: Callable[[str, PastTime | None], Awaitable[int]] = _no_shared_head
        self._driver = driver
        self._waiters: dict[str, list[_Waiter]] = {}
        self._deleted: set[str] = set()

    async def wait_reached(self, topic: str, epoch: str, offset: int) -> None:
        """Wait until the engine has the topic's messages up to an offset.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Refused: bus-unavailable, where it takes too long or the topic began again meanwhile:
                whether the messages are there is not known.
        """
        waiter = _Waiter(epoch, offset, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(topic, []).append(waiter)
        # What was stored may be here already: the log can overtake the reply to the append.
        self.notify(topic)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await waiter.arrived
        except TimeoutError:
            detail = "This gateway has not read all that the bus has; what was sent may be stored."
            raise Unavailable(detail) from None
        finally:
            self._forget(topic, waiter)

    async def catch_up(self, topic: str, epoch: str, past: PastTime | None = None) -> None:
        """Wait until the engine has all that the shared store has of a topic now.

        Args:
            topic: its name.
            epoch: the one in which it is waited for.
            past: a time; if it is past, messages that are stored from now on are later.

        Raises:
            TopicUnknown, Refused: as `wait_reached`.
        """
        await self.wait_reached(topic, epoch, await self.shared_head(topic, past))

    def notify(self, topic: str) -> None:
        """Wake the waiters of a topic: its head has moved, or the topic began again or ended."""
        waiters = self._waiters.get(topic, [])
        for waiter in waiters:
            if not waiter.arrived.done():
                self._resolve(topic, waiter)

    @contextlib.contextmanager
    def deleting(self, topic: str, epoch: str) -> Iterator[None]:
        """Fail the writers of a topic that another gateway has deleted, in this block.

        What they stored does not come back, and they hold the lock that removing the topic needs.
        """
        self._deleted.add(epoch)
        self.notify(topic)
        try:
            yield
        finally:
            self._deleted.discard(epoch)

    def _resolve(self, topic: str, waiter: _Waiter) -> None:
        try:
            found = self._driver.engine.topic(topic)
        except TopicUnknown as error:
            waiter.arrived.set_exception(TopicUnknown(error.detail))
            return
        if waiter.epoch in self._deleted or found.epoch in self._deleted:
            waiter.arrived.set_exception(TopicUnknown("the topic was deleted"))
        elif found.place(Bookmark(waiter.epoch, waiter.offset)).epoch != found.epoch:
            detail = "The topic began again meanwhile; what was sent may be missing."
            waiter.arrived.set_exception(Unavailable(detail))
        elif found.head >= waiter.offset:
            waiter.arrived.set_result(None)

    def _forget(self, topic: str, waiter: _Waiter) -> None:
        waiters = self._waiters[topic]
        waiters.remove(waiter)
        if not waiters:
            del self._waiters[topic]


async def _no_shared_head(topic: str, past: PastTime | None) -> int:
    """Return the head of a topic without a bus: there is nothing to wait for."""
    return 0
