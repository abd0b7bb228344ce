"""Expiry: removes records that were not published again for so long (`expiration`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from tidegate.app.refusals import Refused
from tidegate.app.streams.driver import Driver
from tidegate.app.timers import Backoff
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.registry import TopicRegistry
from tidegate.app.topics.writer import Writer
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import Frame, RemovalReason
from tidegate.conflation.outputs import RecordsExpired
from tidegate.keys.text.bookmark import Bookmark

EXPIRED_AT_ONCE = 500
RETRY_S = 1.0

logger = logging.getLogger("tidegate.expiry")


class Expiry:
    """Removes expired records, topic by topic.

    The engine's own deadlines report them. Where gateways share a store the leader removes; every
    gateway notes what is due.
    """

    def __init__(
        self, catalog: TopicRegistry, driver: Driver, writer: Writer, leadership: Leadership
    ) -> None:
        self._catalog = catalog
        self._driver = driver
        self._writer = writer
        self._leadership = leadership
        self._due: dict[str, RecordsExpired] = {}
        self._woken = asyncio.Event()

    def note(self, expired: RecordsExpired) -> None:
        """Note that records of a topic are due; the latest report covers the earlier ones."""
        self._due[expired.topic] = expired
        self._woken.set()

    async def run(self) -> None:
        """Remove expired records as the engine reports them, until cancelled."""
        backoff = Backoff(RETRY_S)
        while True:
            await self._woken.wait()
            await self._leadership.begins()
            # Cleared only now: whatever was noted while another gateway led is still in `_due`.
            self._woken.clear()
            due, self._due = self._due, {}
            for expired in due.values():
                await self._remove_or_wait(expired, backoff)

    async def _remove_or_wait(self, expired: RecordsExpired, backoff: Backoff) -> None:
        """Remove a topic's expired records; while the store is out, keep them noted."""
        try:
            await self.remove_expired(expired)
            backoff.succeeded()
        except Exception as error:
            text = "%s: records stay beyond their time, tried again: %s"
            is_foreseen = isinstance(error, Refused)
            logger.log(backoff.level, text, expired.topic, error, exc_info=not is_foreseen)
            self._due.setdefault(expired.topic, expired)  # a later report covers this one
            self._woken.set()
            await backoff.pause()

    async def remove_expired(self, expired: RecordsExpired) -> None:
        """Remove expired records that were not published again, the oldest first.

        A topic that was deleted, created again, or has begun again is left alone, and so is one
        whose records do not expire any more.
        """
        entry = self._catalog.served(expired.topic)

        def expire() -> bool:
            return self._driver.engine.topic(expired.topic).definition.expiration_ns is not None

        while entry is not None and self._catalog.served(expired.topic) is entry:
            # Some at a time: records that are published meanwhile are no longer the oldest.
            records = self._oldest(expired)
            if not records or not expire():
                return
            with contextlib.suppress(TopicUnknown):  # it was deleted while it waited its turn
                await self._writer.remove(
                    entry, records, RemovalReason.EXPIRED, self._leadership.fence, expire
                )

    def _oldest(self, expired: RecordsExpired) -> Sequence[Frame]:
        """Return the oldest expired records that the topic has now."""
        # Looked up each time: a topic that restarts has another board.
        topic = self._driver.engine.topic(expired.topic)
        is_its_own = topic.place(Bookmark(expired.epoch, expired.through)).epoch == topic.epoch
        if topic.sow is None or not is_its_own:
            return ()
        return topic.sow.board.oldest_through(expired.through, EXPIRED_AT_ONCE)
