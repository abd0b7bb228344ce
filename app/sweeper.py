"""The sweeper: takes records away that were not published again for so long (`expiration`)."""

from __future__ import annotations

import asyncio
import logging

from app.catalog import Catalog
from app.driver import Driver
from app.problems import Problem
from app.writer import Writer
from conflation.errors import EngineError
from conflation.frame import Gone
from conflation.outputs import RecordsExpired

SWEPT_AT_ONCE = 500

logger = logging.getLogger("tidegate.sweeper")


class Sweeper:
    """Turns what the engine says has expired into removals, topic by topic.

    Nothing is polled: the engine's own deadlines wake it.
    """

    def __init__(self, catalog: Catalog, driver: Driver, writer: Writer) -> None:
        self._catalog = catalog
        self._driver = driver
        self._writer = writer
        self._due: dict[str, RecordsExpired] = {}
        self._woken = asyncio.Event()

    def note(self, expired: RecordsExpired) -> None:
        """Records of a topic are due; the latest word covers the earlier ones."""
        self._due[expired.topic] = expired
        self._woken.set()

    async def run(self) -> None:
        """Sweep whenever there is something to sweep, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            due, self._due = self._due, {}
            for expired in due.values():
                try:
                    await self.sweep(expired)
                except (Problem, EngineError):
                    logger.info("%s was deleted while its records expired", expired.topic)

    async def sweep(self, expired: RecordsExpired) -> None:
        """Remove a topic's records that were not published again since, the oldest first.

        Raises:
            Problem, EngineError: the topic was deleted meanwhile.
        """
        entry = self._catalog.find(expired.topic)
        if entry is None or entry.record.epoch != expired.epoch:
            return
        sow = self._driver.engine.topic(expired.topic).sow
        while sow is not None and (
            records := sow.board.oldest_through(expired.through, SWEPT_AT_ONCE)
        ):
            await self._writer.remove(entry, records, Gone.EXPIRED)
