"""Arrivals: how far the engine has come with what is appended on a bus, for who waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.driver import Driver
from app.problems import Problem
from conflation.errors import TopicUnknown

PATIENCE_S = 10.0
"""More than a stream that is behind may hold a large publish up (`app.driver`)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    epoch: str
    offset: int
    arrived: asyncio.Future[None]


class Arrivals:
    """What was stored is delivered once the engine has it; until then its writer waits."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._waiters: dict[str, list[_Waiter]] = {}

    async def reached(self, topic: str, epoch: str, offset: int) -> None:
        """Until the engine has the topic's messages up to an offset.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Problem: bus-unavailable, where it takes too long or the topic began again meanwhile:
                whether the messages are there is not known.
        """
        waiter = _Waiter(epoch, offset, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(topic, []).append(waiter)
        self.moved(topic)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await waiter.arrived
        except TimeoutError:
            raise _unknown("It is stored, but has not come back from the bus yet.") from None
        finally:
            self._forget(topic, waiter)

    def moved(self, topic: str) -> None:
        """The engine has more of a topic, or the topic has begun again, or is no more."""
        waiters = self._waiters.get(topic, [])
        for waiter in waiters:
            if not waiter.arrived.done():
                self._tell(topic, waiter)

    def _tell(self, topic: str, waiter: _Waiter) -> None:
        try:
            found = self._driver.engine.topic(topic)
        except TopicUnknown as error:
            waiter.arrived.set_exception(error)
            return
        if found.epoch != waiter.epoch:
            detail = "The topic began again meanwhile; what was sent may be missing."
            waiter.arrived.set_exception(_unknown(detail))
        elif found.head >= waiter.offset:
            waiter.arrived.set_result(None)

    def _forget(self, topic: str, waiter: _Waiter) -> None:
        waiters = self._waiters[topic]
        waiters.remove(waiter)
        if not waiters:
            del self._waiters[topic]


def _unknown(detail: str) -> Problem:
    return Problem("bus-unavailable", detail, headers={"Retry-After": "1"})
