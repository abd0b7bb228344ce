"""A lease: one gateway at a time has it, under a number that rises from holder to holder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection, reaching
from app.bus.scripts import HOLD, TAKE
from app.problems import Problem

DUTIES = "duties"
"""The name of the one lease there is: of what one gateway does for all."""

TERM_S = 4.0
BEATS_PER_TERM = 8  # who does not have it looks as often: it is soon free after a death

logger = logging.getLogger("tidegate.bus")


def lease_key(connection: BusConnection, name: str) -> str:
    """Where the bus has who holds a lease."""
    return connection.shared_key("lease", name)


class Lease:
    """Taken when it is free, held on to while the bus answers, given back at the end.

    Whoever was away for longer than a term has lost it before another can take it, by its own
    clock; should that be wrong, the number tells.

    Args:
        connection: what the gateways share.
        name: of the lease.
        holder: this gateway's id.
        taken: called with the number when it is this gateway's.
        lost: called when it is not any more.
        clock: seconds, never running back.
    """

    def __init__(
        self,
        connection: BusConnection,
        name: str,
        holder: str,
        *,
        taken: Callable[[int], Awaitable[None]],
        lost: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        term_s: float = TERM_S,
    ) -> None:
        self.number: int | None = None
        self._connection = connection
        self._keys = [lease_key(connection, name), connection.shared_key("fence", name)]
        self._holder = holder
        self._taken = taken
        self._lost = lost
        self._clock = clock
        self._term_s = term_s
        self._holds_until_s = 0.0

    async def run(self) -> None:
        """Take it and hold on to it, until cancelled."""
        while True:
            try:
                await self.beat()
            except Exception:
                logger.exception("a duty was not taken or left; tried again")
            heed_cancellation()
            await asyncio.sleep(self._term_s / BEATS_PER_TERM)

    async def beat(self) -> None:
        """One step: take the lease, hold on to it, or see that it is lost."""
        asked_s, term_ms = self._clock(), round(self._term_s * 1_000)
        try:
            with reaching():
                if self.number is None:
                    await self._take(asked_s, term_ms)
                    return
                words = [self._holder, term_ms]
                if await self._connection.run(HOLD, self._keys[:1], words):
                    self._holds_until_s = asked_s + self._term_s
                else:
                    self._holds_until_s = 0.0
        except Problem:
            pass  # the bus is out: it holds for the rest of the term
        if self.number is not None and self._clock() >= self._holds_until_s:
            await self._lose()

    async def give_back(self) -> None:
        """Let another take it at once."""
        if self.number is None:
            return
        await self._lose()
        try:
            with reaching():
                await self._connection.run(HOLD, self._keys[:1], [self._holder, 0])
        except Problem:
            pass  # then its term ends by itself

    async def _take(self, asked_s: float, term_ms: int) -> None:
        number = await self._connection.run(TAKE, self._keys, [self._holder, term_ms])
        if number:
            self.number, self._holds_until_s = number, asked_s + self._term_s
            await self._taken(number)

    async def _lose(self) -> None:
        self.number = None
        await self._lost()
