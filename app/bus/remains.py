"""Remains: what gateways that have died have left on `tidegate.sessions` is cleared away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from app.bus.cancellation import heed_cancellation
from app.bus.places import Places
from app.bus.roll import GONE_S, Roll
from app.catalog import Catalog
from app.driver import Driver
from app.duty import Duty
from app.own_topics import SESSIONS
from app.writer import Writer
from conflation.frame import Frame, Gone

LOOK_S = 2.0

logger = logging.getLogger("tidegate.bus")


class Row(msgspec.Struct):
    """What is told of a session, as far as it says whose it is."""

    session: str
    gateway: str = ""


_ROWS = msgspec.json.Decoder(Row)


class Remains:
    """Removes rows of sessions that no gateway has, nor can take up any more.

    One of the gateways does it for all. Who tells of a session last is the gateway that has it.
    """

    def __init__(
        self,
        roll: Roll,
        places: Places,
        catalog: Catalog,
        driver: Driver,
        writer: Writer,
        duty: Duty,
    ) -> None:
        self._roll = roll
        self._places = places
        self._catalog = catalog
        self._driver = driver
        self._writer = writer
        self._duty = duty

    async def run(self) -> None:
        """Look now and then, until cancelled; while the bus is out that waits."""
        while True:
            await asyncio.sleep(LOOK_S)
            heed_cancellation()
            await self._duty.begins()
            try:
                await self.clear()
            except Exception as error:  # most often the bus is out
                logger.info("%s may have rows of dead gateways: %s", SESSIONS, error)

    async def clear(self) -> None:
        """Remove what nobody answers for.

        Raises:
            TopicUnknown, Problem: not all was removed.
        """
        entry = self._catalog.find(SESSIONS)
        if entry is None or not self._roll.is_steady(GONE_S):
            return  # whom the bus has not heard of may be there all the same
        sow = self._driver.engine.topic(SESSIONS).sow
        assert sow is not None, "it has a key"
        if not (strange := self._of_strangers(sow.board.live())):
            return
        await self._roll.beat()  # who has told of a session is on the roll from before on
        there = self._there()
        left = [row for row in self._of_strangers(strange) if await self._is_nobody_s(row, there)]
        if left:
            await self._writer.remove(entry, left, Gone.DELETED, self._duty.fence)

    def _there(self) -> set[str]:
        return {*self._roll.others, self._roll.gateway}

    def _of_strangers(self, rows: Iterable[Frame]) -> list[Frame]:
        """Those of gateways that are not on the roll."""
        there = self._there()
        return [row for row in rows if _ROWS.decode(row.payload).gateway not in there]

    async def _is_nobody_s(self, row: Frame, there: set[str]) -> bool:
        place = await self._places.look(_ROWS.decode(row.payload).session)
        heed_cancellation()
        return place.owner not in there and not (place.luggage and not place.owner)
