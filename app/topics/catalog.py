"""The catalog: creates, changes and deletes topics, in step with the store and the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidegate.app.definitions.graph import (
    check_identity,
    check_source,
    keeps_messages,
    resolved,
)
from tidegate.app.definitions.mergers import NO_MERGERS, Mergers
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.names import OWN_PREFIX
from tidegate.app.refusals import Refused, Unavailable, topic_unknown
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import (
    DefinitionHeld,
    DefinitionsMoved,
    HeadMoved,
    Store,
    Stored,
    TopicMoved,
    TopicRecord,
    TopicRedefined,
    check_readable,
    encode_definition,
    new_epoch,
)
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.derived import DerivedTopics
from tidegate.app.topics.registry import (
    CatalogTopic,
    Fault,
    Precondition,
    TopicRecreated,
    TopicRegistry,
)
from tidegate.conflation.frame import RestoredTopic
from tidegate.keys.errors import KeysError
from tidegate.keys.text.bookmark import Bookmark

HELD_PAUSE_S = 0.05
TRIES_MAX = 10
"""How often an act is tried by the newest definition, while others change it each time."""

logger = logging.getLogger("tidegate.store")

Decision = TypeVar("Decision")


class Catalog(TopicRegistry):
    """Changes topics one at a time, each whole or not at all.

    `changing` is held during a change. Where gateways share the store, `catch_up` reads what others
    have written, and a decision made without it is repeated.
    """

    def __init__(
        self,
        store: Store,
        driver: Driver,
        derived_topics: DerivedTopics,
        settings: Settings,
        mergers: Mergers = NO_MERGERS,
    ) -> None:
        super().__init__(driver, settings)
        self._mergers = mergers
        self._store = store
        self.filling = derived_topics
        self.changing = asyncio.Lock()
        self.catch_up: Callable[[], Awaitable[None]] | None = None
        self._found: set[str] = set()

    async def open(self) -> None:
        """Load the store's topics. One that cannot be used is set aside and delays no other."""
        for stored in await self._store.records():
            await self._open_topic(stored)

    async def _open_topic(self, stored: Stored | None) -> None:
        """Load a topic, as another gateway has defined it meanwhile where it has; None: deleted."""
        while stored is not None:
            self._found.add(stored.epoch)
            if isinstance(stored, Unusable):
                self.set_aside(stored)
                return
            try:
                kept = await self._stored_state(stored)
            except TopicRedefined as redefined:
                stored = redefined.stored
                continue
            if kept is not None:
                self._restored(stored, kept)
            return

    def _restored(self, record: TopicRecord, kept: RestoredTopic) -> CatalogTopic | None:
        """Restore a topic; set it aside and return None if that fails."""
        try:
            return self.restore(record, kept)
        except Exception as error:  # whatever it is, it is this topic's and no other's
            self._set_aside_for(error, record)
            return None

    async def _stored_state(self, record: TopicRecord) -> RestoredTopic | None:
        """Read a topic's stored state; set it aside and return None if that is unreadable."""
        try:
            return await self._store.load(record.name)
        except (Refused, DefinitionsMoved):  # the store is out, or others change the topic
            raise
        except Exception as error:
            self._set_aside_for(error, record)
            return None

    def _set_aside_for(self, error: Exception, record: TopicRecord) -> None:
        logger.debug("%s: the stored state cannot be restored", record.name, exc_info=error)
        reason = f"Its stored state cannot be restored ({type(error).__name__})."
        self.set_aside(
            Unusable(record.name, encode_definition(record.document), record.epoch, reason)
        )

    def faults(self) -> list[Fault]:
        """Return topics that are unusable, and topics that are served but cannot be derived."""
        return [
            *(Fault(it.name, "unusable", it.reason) for it in self.all_unusable()),
            *(Fault(name, "unfilled", reason) for name, reason in self.filling.reasons.items()),
        ]

    def start_filling(self) -> None:
        """Start to fill derived topics, whenever this gateway is the leader."""
        for entry in self.entries():
            self.filling.start(entry)

    async def seek(self, name: str) -> CatalogTopic | None:
        """Return the topic of this name, even one that another gateway has just created.

        Raises:
            Refused: bus-unavailable; whether it is there is not known. not-ready: it is there, and
                cannot be used here.
        """
        if self.served(name) is None and self.catch_up is not None:
            await self.catch_up()
        return self.find(name)

    async def refresh(self) -> None:
        """Apply what other gateways have changed; while the store is out, what is known holds."""
        await self._outage()

    async def check_bookmark(self, name: str, seen: Bookmark) -> None:
        """Check a reader's bookmark: one beyond the topic shows that the store has gone back.

        The topic then restarts. Only an epoch that was found at the start can have gone back;
        for a newer epoch no such bookmark was ever given, so it means nothing.
        """
        topic = self._driver.engine.topic(name)
        if seen.epoch not in self._found or seen.epoch != topic.epoch or seen.offset <= topic.head:
            return
        async with self.changing:
            entry = self.served(name)
            if entry is not None and entry.record.epoch == seen.epoch:
                await self._renew(entry, seen)

    async def _renew(self, entry: CatalogTopic, seen: Bookmark) -> None:
        name = entry.record.name
        async with entry.writing:
            epoch = await self._store.confirm_epoch(name, seen.offset)
            if epoch != seen.epoch:
                logger.warning("%s has gone back: it begins again in epoch %s", name, epoch)
                kept = await self._store.load(name)
                self.renew(TopicRecord(name, entry.document, epoch), kept)
                entry.checkpoint_offset = kept.through

    async def with_newest_definition(
        self, entry: CatalogTopic, act: Callable[[CatalogTopic], Awaitable[Decision]]
    ) -> Decision:
        """Act on a topic by its newest definition.

        An act that is refused by a definition which another gateway has just changed is repeated.

        Raises:
            TopicUnknown, KeysError, Refused: as the act.
        """
        tries = 0
        while True:
            record, tries = entry.record, tries + 1
            try:
                return await act(entry)
            except (TopicRecreated, KeysError, Refused) as refusal:
                if _may_have_effect(refusal) or tries == TRIES_MAX:
                    raise
                await self.refresh()
                found = self.get(record.name)  # a topic that is gone refuses nothing any more
                if found.record == record:
                    raise
                entry = found

    async def put(
        self, name: str, document: TopicDefinition, expected: Precondition | None = None
    ) -> tuple[CatalogTopic, bool]:
        """Create a topic or replace its definition; return it and whether it is new.

        The same definition twice changes nothing.

        Raises:
            Refused: topic-conflict for another key or a source while it holds messages,
                source-cycle, topic-unknown for a source that is not there, limit-reached,
                precondition-failed, not-ready for a source that cannot be used here, topic-invalid
                for what could not be read again.
        """

        async def decide() -> tuple[CatalogTopic, bool]:
            known, unusable = self.served(name), self.unusable(name)
            if expected is not None:
                expected.check(known or unusable)
            wanted = self._readable(name, document)
            if unusable is not None:
                return await self._repair(unusable, wanted), False
            if known is None:
                return await self._create(name, wanted), True
            if wanted != known.document:
                known = await self._replace(known, wanted)
            return known, False

        return await self._decided(decide)

    async def patch(
        self,
        name: str,
        change: Callable[[TopicDefinition], TopicDefinition],
        expected: Precondition,
    ) -> CatalogTopic:
        """Replace a definition by what `change` makes of it, with no other change in between.

        Raises:
            Refused: topic-unknown, as `put`, or what `change` raises.
        """

        async def decide() -> CatalogTopic:
            known = self.get(name)
            expected.check(known)
            document = self._readable(name, change(known.document))
            return known if document == known.document else await self._replace(known, document)

        return await self._decided(decide)

    async def get_or_create(self, name: str) -> CatalogTopic:
        """Return the topic of this name; create a plain one where settings allow.

        Raises:
            Refused: topic-unknown, limit-reached.
        """
        found = self.find(name)
        if found is not None:
            return found
        if not self._settings.auto_create_topics:
            raise topic_unknown(name)

        async def decide() -> CatalogTopic:  # it may be there by now, with a definition of its own
            return self.find(name) or await self._create(name, TopicDefinition())

        return await self._decided(decide)

    async def delete(self, name: str, expected: Precondition | None = None) -> None:
        """Delete a topic; its subscriptions end with REMOVED.

        Raises:
            Refused: topic-unknown, topic-in-use, precondition-failed.
        """

        async def decide() -> None:
            unusable = self.unusable(name)
            entry = None if unusable else self.get(name)
            if expected is not None:
                expected.check(entry or unusable)
            if self.is_source(name):
                raise Refused("topic-in-use", "Another topic is filled from this one.")
            if unusable is not None:
                await self._store.delete_topic(name)
                self.drop_unusable(unusable)
                return
            assert entry is not None, "it is there, and usable"
            # In this order: to stop filling is to wait for a task that may wait for `writing`.
            async with self.filling.unfilled(entry), entry.writing:
                await self._store.delete_topic(name)
                self.drop(entry)

        await self._decided(decide)

    # What other gateways have made of topics; the caller holds `changing`

    def add_stored(self, record: TopicRecord, kept: RestoredTopic) -> None:
        """Add a topic with its stored state, and start to fill it if it has a source."""
        entry = self._restored(record, kept)
        if entry is not None:
            self.filling.start(entry)

    async def adopt_definition(self, known: CatalogTopic, document: TopicDefinition) -> None:
        """Apply a topic's new definition of the same identity, also where it cannot be filled."""
        record = TopicRecord(known.record.name, document, known.record.epoch)
        async with self.filling.refilled(known, document), known.writing:
            self.define(known, record)

    async def adopt_unusable(self, unusable: Unusable) -> None:
        """Set a topic aside whose new definition cannot be used here."""
        known = self.served(unusable.name)
        if known is None:
            self.set_aside(unusable)
        else:
            async with self.filling.unfilled(known), known.writing:
                self.set_aside(unusable)

    async def adopt_deletion(self, known: CatalogTopic) -> None:
        """Remove a topic; its subscriptions end with REMOVED here too."""
        async with self.filling.unfilled(known), known.writing:
            self.drop(known)

    async def _decided(self, decide: Callable[[], Awaitable[Decision]]) -> Decision:
        """Run a decision while no other change is made, here or at another gateway.

        What changes nothing is not compared with anything by the store, so the newest definitions
        are read first. A refusal and a decision without a change count only by them.

        Raises:
            Refused: bus-unavailable, or what `decide` raises.
        """
        may_look = self.catch_up is not None
        outage = await self._outage()
        while True:
            try:
                async with self.changing:
                    revision = self.revision
                    decision = await decide()
                    if outage is not None and self.revision == revision:
                        raise outage
                    return decision
            except DefinitionHeld:
                await asyncio.sleep(HELD_PAUSE_S)
            except DefinitionsMoved:
                pass
            except Refused as refusal:
                if not may_look or _may_have_effect(refusal):
                    raise
                # A second refusal counts: it was decided by the newest definitions.
                may_look = False
            assert self.catch_up is not None, "only a shared store says so"
            await self.catch_up()
            outage = None

    async def _outage(self) -> Refused | None:
        """Apply what other gateways have changed; return why that is not possible now."""
        try:
            if self.catch_up is not None:
                await self.catch_up()
        except Refused as refusal:
            return refusal
        return None

    async def _create(self, name: str, document: TopicDefinition) -> CatalogTopic:
        if not name.startswith(OWN_PREFIX) and not self.has_room():
            raise Refused(
                "limit-reached",
                f"There are {self._settings.topics_max} topics already (topics_max).",
                retry_after_s=60,
            )
        mark = await self.filling.first_mark(document)
        record = TopicRecord(name, document, new_epoch())
        await self._store.put_topic(record, mark)
        entry = self.admit(record)
        self.filling.start(entry)
        return entry

    def _readable(self, name: str, document: TopicDefinition) -> TopicDefinition:
        """Return the definition as stored, checked that the next start can read it.

        Raises:
            Refused: as `put`.
        """
        wanted = resolved(name, document, self.document)
        check_readable(wanted, self._mergers, self._settings)
        return wanted

    async def _repair(self, unusable: Unusable, document: TopicDefinition) -> CatalogTopic:
        """Replace an unusable definition by a usable one; keep the messages that fit it."""
        name = unusable.name
        has_messages = await self._store.head(name) > 0
        is_used = self.is_source(name)
        try:
            stays = keeps_messages(unusable, document, has_messages=has_messages, is_used=is_used)
            epoch = unusable.epoch if stays else new_epoch()
            source = document.gateway_source
            is_filled = stays and source is not None and source.topic == unusable.source_topic
            mark = "" if is_filled else await self.filling.first_mark(document)
            await self._store.put_topic(TopicRecord(name, document, epoch), mark)
        except HeadMoved:  # another gateway has just taken one in
            keeps_messages(unusable, document, has_messages=True, is_used=is_used)
            raise
        record = TopicRecord(name, document, epoch)
        if (kept := await self._stored_state(record)) is not None:
            self.add_stored(record, kept)
        return self.get(name)  # refused with the reason, if the messages cannot be read either

    async def _replace(self, known: CatalogTopic, document: TopicDefinition) -> CatalogTopic:
        if document.identity != known.document.identity:
            has_messages = self._driver.engine.topic(known.record.name).head > 0
            self._check_identity(known, document, has_messages=has_messages)
            try:
                return await self._recreate(known, document)
            except HeadMoved:  # another gateway has just taken one in
                self._check_identity(known, document, has_messages=True)
                raise
        mark = await self.filling.first_mark(document, known.document)
        async with self.filling.refilled(known, document), known.writing:
            has_messages = self._driver.engine.topic(known.record.name).head > 0
            check_source(known.document, document, has_messages=has_messages)
            record = TopicRecord(known.record.name, document, known.record.epoch)
            try:
                await self._store.put_topic(record, mark)
            except HeadMoved:  # another gateway has taken one in that has not arrived here
                check_source(known.document, document, has_messages=True)
                raise
            self.define(known, record)
        return known

    async def _recreate(self, known: CatalogTopic, document: TopicDefinition) -> CatalogTopic:
        """Replace a topic without messages by another one, in a new epoch."""
        name = known.record.name
        mark = await self.filling.first_mark(document)
        async with self.filling.unfilled(known), known.writing:
            record = TopicRecord(name, document, new_epoch())
            await self._store.put_topic(record, mark)
            entry = self.supersede(record)
        self.filling.start(entry)
        return entry

    def _check_identity(
        self, known: CatalogTopic, document: TopicDefinition, *, has_messages: bool
    ) -> None:
        """Refuse another key or type where messages or derived topics need the old one."""
        is_used = self.is_source(known.record.name)
        check_identity(known.document, document, has_messages=has_messages, is_used=is_used)


def _may_have_effect(refusal: Exception) -> bool:
    """Return True if a refused change may have been written nevertheless."""
    # An answer that was lost may stand for a write; every other refusal was decided before one.
    return isinstance(refusal, Unavailable) and not isinstance(refusal, TopicMoved)
