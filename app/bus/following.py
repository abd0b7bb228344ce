"""Following: definitions that other gateways make, change and delete hold here too."""

from __future__ import annotations

import asyncio
import logging

from redis.exceptions import RedisError

from app.arrivals import Arrivals
from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection, patiently
from app.bus.redis_store import RedisStore, bus_is_out, new_epoch
from app.catalog import Catalog
from app.followed import Followed
from app.logs import event
from app.problems import Problem
from app.stores.shared import DefinitionsMoved
from app.stores.store import Kept, TopicRecord

WAIT_S = 5.0
RETRY_S = 0.2

logger = logging.getLogger("tidegate.bus")


class Following:
    """Keeps the catalog in step with the bus, one definition after the other."""

    def __init__(
        self, connection: BusConnection, store: RedisStore, catalog: Catalog, arrivals: Arrivals
    ) -> None:
        self._connection = connection
        self._store = store
        self._catalog = catalog
        self._followed = Followed(catalog)
        self._arrivals = arrivals

    async def run(self) -> None:
        """Take over what is written, until cancelled; while the bus is out that waits."""
        while True:
            heed_cancellation()
            try:
                if await self._has_news():
                    await self.sync()
            except (RedisError, OSError, Problem) as error:
                logger.debug("definitions cannot be read: %s", error)
                await asyncio.sleep(RETRY_S)
            except Exception:
                logger.exception("a definition was not taken over; tried again")
                await asyncio.sleep(RETRY_S)

    async def sync(self) -> None:
        """Take over all that was written by others so far.

        Raises:
            Problem: bus-unavailable.
        """
        async with self._catalog.changing:
            for change in await self._store.changes():
                await self._apply(change.name, change.record)
                self._store.took_over(change)

    async def catch_up(self) -> None:
        """The same for who waits for it; while the bus is out nobody is kept waiting.

        Raises:
            Problem: bus-unavailable.
        """
        if self._store.is_out():
            raise bus_is_out()
        await self.sync()

    async def restore(self) -> None:
        """The bus has lost definitions: it gets those that are known here, in other epochs.

        What it has after all is taken over. What a topic held is gone: no gateway knows alone what
        was acknowledged.

        Raises:
            Problem: bus-unavailable.
        """
        async with self._catalog.changing:
            while True:
                try:
                    await self._put_back()
                    return
                except DefinitionsMoved:
                    continue  # another gateway is about the same
                except BaseException:
                    self._store.definitions.doubt()  # until all of it holds here
                    raise

    async def _put_back(self) -> None:
        await self._store.reopen()
        there = {record.name: record for record in await self._store.records()}
        lost = [it for it in self._catalog.entries() if it.record.name not in there]
        if lost:
            told = event("bus-lost", topics=len(lost))
            logger.warning("the bus has lost %d topics: they begin empty", len(lost), extra=told)
        for entry in lost:
            record = TopicRecord(entry.record.name, entry.document, new_epoch())
            await self._store.put_topic(record)
            self._renew(record, Kept())
        for record in there.values():
            await self._apply(record.name, record)

    async def _has_news(self) -> bool:
        definitions = self._store.definitions
        words = ("XREAD", "COUNT", 1, "BLOCK", round(WAIT_S * 1_000), "STREAMS")
        place = f"{definitions.version}-0"
        return bool(
            await patiently(self._connection.read(*words, definitions.stream, place), WAIT_S)
        )

    async def _apply(self, name: str, record: TopicRecord | None) -> None:
        """Have the catalog say what the bus says."""
        known = self._catalog.find(name)
        if record is None:
            if known is not None:
                await self._followed.forget(known)
            self._store.note(name, None)
        elif known is None:
            await self._adopt(record, await self._store.kept_as(record))
        elif known.document.identity != record.document.identity:
            kept = await self._store.kept_as(record)
            await self._followed.forget(known)
            await self._adopt(record, kept)
        else:
            if known.document != record.document:
                await self._followed.redefine(known, record.document)
            if known.record.epoch != record.epoch:
                self._renew(record, await self._store.kept_as(record))
            self._store.note(name, record)
        self._arrivals.moved(name)

    async def _adopt(self, record: TopicRecord, kept: Kept) -> None:
        """A topic is there; what its stream has from the beginning comes to patterns from there."""
        self._store.note(record.name, record)
        await self._followed.adopt(record, kept if kept.dropped_through else Kept())

    def _renew(self, record: TopicRecord, kept: Kept) -> None:
        logger.warning("%s begins again, in epoch %s", record.name, record.epoch)
        self._store.note(record.name, record)
        self._catalog.renew(record, kept)
        self._arrivals.moved(record.name)
