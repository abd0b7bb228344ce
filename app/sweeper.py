"""The sweeper: takes records away that were not published again for so long (`expiration`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from app.catalog import Catalog
from app.driver import Driver
from app.duty import Duty
from app.writer import Writer
from conflation.errors import TopicUnknown
from conflation.frame import Gone
from conflation.outputs import RecordsExpired

SWEPT_AT_ONCE = 500
RETRY_S = 1.0

logger = logging.getLogger("tidegate.sweeper")


class Sweeper:
    """Turns what the engine says has expired into removals, topic by topic.

    Nothing is polled: the engine's own deadlines wake it. Where gateways share a store one of them
    sweeps; what is due is noted by all.
    """

    def __init__(self, catalog: Catalog, driver: Driver, writer: Writer, duty: Duty) -> None:
        self._catalog = catalog
        self._driver = driver
        self._writer = writer
        self._duty = duty
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
            await self._duty.begins()
            self._woken.clear()
            due, self._due = self._due, {}
            for expired in due.values():
                await self._sweep_or_wait(expired)

    async def _sweep_or_wait(self, expired: RecordsExpired) -> None:
        """Sweep a topic; while the store is out it stays noted, unless there is later news."""
        try:
            await self.sweep(expired)
        except Exception:
            logger.exception("%s: records stay beyond their time; tried again", expired.topic)
            self._due.setdefault(expired.topic, expired)
            self._woken.set()
            await asyncio.sleep(RETRY_S)

    async def sweep(self, expired: RecordsExpired) -> None:
        """Remove a topic's records that were not published again since, the oldest first.

        A topic that is not there any more, or is another one of that name, is left alone.
        """
        entry = self._catalog.find(expired.topic)
        if entry is None or entry.record.epoch != expired.epoch:
            return
        sow = self._driver.engine.topic(expired.topic).sow
        while sow is not None and self._catalog.find(expired.topic) is entry:
            records = sow.board.oldest_through(expired.through, SWEPT_AT_ONCE)
            if not records:
                return
            with contextlib.suppress(TopicUnknown):  # it was deleted while it waited its turn
                await self._writer.remove(entry, records, Gone.EXPIRED, self._duty.fence)
