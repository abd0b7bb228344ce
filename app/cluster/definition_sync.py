"""Definition sync: applies topic definitions that other gateways create, change and delete."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace

from redis.exceptions import RedisError

from tidegate.app.cluster.connection import BusConnection, id_after, translate_errors, with_timeout
from tidegate.app.cluster.definitions import in_order_of_sources
from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.definitions.topic import Unusable
from tidegate.app.logs import event
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.stores.store import Change, DefinitionsMoved, Stored, TopicRecord, new_epoch
from tidegate.app.timers import Backoff
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.frame import RestoredTopic
from tidegate.keys.text.bookmark import Bookmark

WAIT_S = 5.0  # a blocked read returns at once on a change; the limit detects a dead peer, or a loss
RETRY_S = 0.2
ANNOUNCE_AFTER_S = 0.2
"""How long a change of definitions is waited for before deletions are announced."""

logger = logging.getLogger("tidegate.bus")


class DefinitionSync:
    """Keeps the catalog equal to the definitions in Redis, one change at a time."""

    def __init__(
        self,
        connection: BusConnection,
        store: RedisStore,
        catalog: Catalog,
        append_waiters: AppendWaiters,
    ) -> None:
        self._connection = connection
        self._store = store
        self._catalog = catalog
        self._append_waiters = append_waiters

    async def run(self) -> None:
        """Apply changes until cancelled, and retry while Redis is unavailable."""
        backoff = Backoff(RETRY_S)
        while True:
            raise_if_cancelled()
            try:
                if await self._wait_for_change():
                    await self.sync()
                continue
            except (RedisError, OSError, Refused) as error:
                # The log reader has warned of the outage already: both use the same Redis.
                logger.debug("reading definitions failed: %s", error)
            except Exception:  # a defect in one definition must not end the task for all others
                logger.exception("applying a definition failed; retrying")
            await backoff.pause()

    async def sync(self) -> None:
        """Apply everything that other gateways have written so far.

        Raises:
            Refused: bus-unavailable.
        """
        with contextlib.ExitStack() as deletions:
            await self._acquire_changing(deletions)
            try:
                changes = await self._store.changes()
                self._announce(changes, deletions)
                for change in changes:
                    await self._apply(change.name, change.record)
                    self._store.mark_applied(change)
            finally:
                self._catalog.changing.release()

    async def _acquire_changing(self, deletions: contextlib.ExitStack) -> None:
        """Acquire `changing`, and announce deletions meanwhile.

        Whoever holds it may wait for a publisher, who waits for what another gateway has deleted.
        """
        changing = self._catalog.changing
        acquiring = asyncio.ensure_future(changing.acquire())
        try:
            while not (await asyncio.wait([acquiring], timeout=ANNOUNCE_AFTER_S))[0]:
                self._announce(await self._store.changes(), deletions)
        except BaseException:
            if not acquiring.cancel():
                changing.release()
            raise

    def _announce(self, changes: Sequence[Change], deletions: contextlib.ExitStack) -> None:
        """Fail those who wait for messages of topics that these changes delete."""
        for change in changes:
            known = self._catalog.served(change.name)
            # A change that was applied meanwhile is of an earlier topic of this name.
            is_pending = change.version > self._store.definitions.version
            if known is not None and change.record is None and is_pending:
                epoch = known.record.epoch
                deletions.enter_context(self._append_waiters.deleting(change.name, epoch))

    async def catch_up(self) -> None:
        """Apply all changes for a waiting caller; fail at once while Redis is unavailable.

        Raises:
            Refused: bus-unavailable.
        """
        if self._store.is_unavailable():
            raise Unavailable
        with translate_errors():
            is_behind = await self._store.definitions.is_behind()
        # Mostly there is nothing. Callers that held `changing` for a look, such as many publishers
        # of a topic that begins again, would keep the log reader from repairing the topic.
        if is_behind:
            await self.sync()

    async def restore(self) -> None:
        """Write the definitions that Redis has lost back, each with a new epoch.

        Definitions that Redis still has are applied here, and so is a deletion that this gateway
        has missed. The messages of a lost topic stay lost, because no single gateway knows
        everything that was acknowledged.

        Raises:
            Refused: bus-unavailable.
        """
        async with self._catalog.changing:
            while True:
                try:
                    await self._restore_lost()
                    return
                except DefinitionsMoved:
                    continue  # another gateway is restoring as well: start from what it wrote
                except BaseException:
                    self._store.definitions.invalidate()  # else the next check would skip the rest
                    raise

    async def _restore_lost(self) -> None:
        await self._store.reopen()
        existing = {record.name: record for record in await self._store.records()}
        # Found by an attempt that did not come to an end, and deleted since.
        for name in self._store.names():
            if name not in existing and not self._catalog.exists(name):
                self._store.set_record(name, None)
        missing = [it for it in self._catalog.entries() if it.record.name not in existing]
        aside = [it for it in self._catalog.all_unusable() if it.name not in existing]
        epochs = {it.record.name: it.record.epoch for it in missing}
        epochs |= {it.name: it.epoch for it in aside}
        deleted = await self._store.definitions.deleted(epochs)
        lost = [it for it in missing if it.record.name not in deleted]
        unusable = [it for it in aside if it.name not in deleted]
        if count := len(lost) + len(unusable):
            fields = event("bus-lost", topics=count)
            logger.warning("the bus has lost %d topics; they restart empty", count, extra=fields)
        for each in unusable:
            restored = replace(each, epoch=new_epoch())
            await self._store.restore_topic(restored)
            self._catalog.set_aside(restored)
        for name in deleted:
            await self._apply(name, None)
        renewed = [TopicRecord(it.record.name, it.document, new_epoch()) for it in lost]
        for stored in in_order_of_sources([*renewed, *existing.values()]):
            if stored.name in existing:
                await self._apply(stored.name, stored)
            elif isinstance(stored, TopicRecord):
                await self._store.restore_topic(stored)
                await self.restart_topic(stored, RestoredTopic())

    async def _wait_for_change(self) -> bool:
        definitions = self._store.definitions
        command = ("XREAD", "COUNT", 1, "BLOCK", round(WAIT_S * 1_000), "STREAMS")
        position = id_after(definitions.version)
        found = await with_timeout(
            self._connection.execute_blocking(*command, definitions.stream, position), WAIT_S
        )
        # Nothing wakes who waits for changes that were deleted with entries that no gateway wrote.
        return bool(found) or await definitions.is_behind()

    async def _apply(self, name: str, record: Stored | None) -> None:
        """Make the catalog's entry equal to the record in Redis."""
        known, unusable = self._catalog.served(name), self._catalog.unusable(name)
        if record is None:
            if known is not None:
                await self._forget(known)
            if unusable is not None:
                self._catalog.drop_unusable(unusable)
            self._store.set_record(name, None)
        elif isinstance(record, Unusable):
            if record != unusable:
                await self._catalog.adopt_unusable(record)
            self._store.set_record(name, record)
        elif known is None:
            self._add_topic(record, await self._load(record))
        elif known.document.identity != record.document.identity:
            # Load first: if Redis fails here, the known topic is still served.
            restored = await self._load(record)
            await self._forget(known)
            self._add_topic(record, restored)
        else:
            if known.document != record.document:
                await self._catalog.adopt_definition(known, record.document)
            if known.record.epoch != record.epoch:
                seen = Bookmark(known.record.epoch, self._store.head_seen(name))
                current = await self._store.load_current(record, seen)
                if current is not None:
                    await self.restart_topic(record, current)
                else:  # Redis is in another life by now, or others trim the topic
                    record = replace(record, epoch=known.record.epoch)
                    self._store.on_suspect(name)
            self._store.set_record(name, record)
        self._append_waiters.notify(name)

    async def _load(self, record: TopicRecord) -> RestoredTopic:
        """Load a topic for a definition that is new here.

        Empty where the server has the topic in another epoch: a newer change follows, or the log
        reader renews the epoch, as after the gateway that made the topic and Redis died together.
        """
        return await self._store.load_current(record) or RestoredTopic()

    async def _forget(self, known: CatalogTopic) -> None:
        with self._append_waiters.deleting(known.record.name, known.record.epoch):
            await self._catalog.adopt_deletion(known)

    def _add_topic(self, record: TopicRecord, restored: RestoredTopic) -> None:
        """Add a topic; pattern subscriptions read its stream from the start."""
        self._store.set_record(record.name, record)
        if not restored.dropped_through:
            # The stream may begin in epochs that the topic's epoch continues.
            restored = RestoredTopic(former=restored.former)
        self._catalog.add_stored(record, restored)

    async def restart_topic(self, record: TopicRecord, restored: RestoredTopic) -> None:
        """Begin a topic again in this epoch; its subscribers stay. The caller holds `changing`."""
        logger.warning("%s restarts in epoch %s", record.name, record.epoch)
        self._store.set_record(record.name, record)
        has_begun = self._catalog.renew(record, restored)
        self._append_waiters.notify(record.name)
        entry = self._catalog.served(record.name)
        if has_begun and entry is not None:  # after that: its filler may wait for what is lost
            self._catalog.filling.begin_again(entry)
