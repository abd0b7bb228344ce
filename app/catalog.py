"""The catalog: the topics there are, kept in step with the store and the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.driver import Driver
from app.entry import Entry
from app.filler import Fillers
from app.filling import Filling
from app.precondition import Precondition
from app.problems import Problem
from app.query import OWN_PREFIX
from app.settings import Settings
from app.stores.shared import DefinitionsMoved, EpochMoved
from app.stores.store import HeadMoved, Store, TopicRecord
from app.topic_document import TopicDocument
from app.topic_graph import check_identity, check_source, resolved
from app.topics import Topics
from app.writer import BegunAnew
from conflation.bookmark import Bookmark
from keys.errors import KeysError

logger = logging.getLogger("tidegate.store")

Decision = TypeVar("Decision")


class Catalog(Topics):
    """Topics by name. Changes are made one at a time and are whole or not at all.

    `changing` is held meanwhile. Where gateways share the store, `catch_up` takes over what others
    have written, and what was decided without that is decided anew; `doubt` has it looked at
    whether a topic has gone back behind a place that somebody has seen.
    """

    def __init__(self, store: Store, driver: Driver, fillers: Fillers, settings: Settings) -> None:
        super().__init__(driver, settings)
        self._store = store
        self.filling = Filling(driver, fillers)
        self.changing = asyncio.Lock()
        self.catch_up: Callable[[], Awaitable[None]] | None = None
        self.doubt: Callable[[str, Bookmark], Awaitable[None]] | None = None
        self._found: set[str] = set()

    async def open(self) -> None:
        """Take over what the store has."""
        for record in await self._store.records():
            self.restore(record, await self._store.kept(record.name))
            self._found.add(record.epoch)
        await self.begin_filling()  # now that every source is there

    async def begin_filling(self) -> None:
        """It is this gateway's turn to fill topics."""
        async with self.changing:
            self.filling.begin(self.entries())

    async def end_filling(self) -> None:
        """It is another's."""
        async with self.changing:
            await self.filling.end()

    async def seek(self, name: str) -> Entry | None:
        """The topic of this name, be it that another gateway has made it just now.

        Raises:
            Problem: bus-unavailable; whether it is there is not known.
        """
        if self.find(name) is None and self.catch_up is not None:
            await self.catch_up()
        return self.find(name)

    async def heed_place(self, name: str, seen: Bookmark) -> None:
        """A reader brings a place in a topic: one ahead of it shows that the store has gone back.

        The topic begins again then. Only an epoch that was found at the start can have gone back:
        of one made since, no such place was ever given, and it is none.
        """
        topic = self._driver.engine.topic(name)
        if seen.epoch not in self._found or seen.epoch != topic.epoch or seen.offset <= topic.head:
            return
        if self.doubt is not None:
            await self.doubt(name, seen)
            return
        async with self.changing:
            entry = self.find(name)
            if entry is not None and entry.record.epoch == seen.epoch:
                await self._renew(entry, seen)

    async def _renew(self, entry: Entry, seen: Bookmark) -> None:
        name = entry.record.name
        async with entry.writing:
            epoch = await self._store.renew(name, seen.offset)
            if epoch != seen.epoch:
                logger.warning("%s has gone back, it begins again, in epoch %s", name, epoch)
                kept = await self._store.kept(name)
                self.renew(TopicRecord(name, entry.document, epoch), kept)
                entry.checkpointed = kept.through

    async def by_what_holds(
        self, entry: Entry, act: Callable[[Entry], Awaitable[Decision]]
    ) -> Decision:
        """What comes of writing to a topic by the definition that holds.

        What is refused by one that another gateway has just changed is decided anew.

        Raises:
            TopicUnknown, KeysError, Problem: as the act.
        """
        while True:
            record = entry.record
            try:
                return await act(entry)
            except (BegunAnew, KeysError, Problem) as refusal:
                if _may_have_effect(refusal):
                    raise
                if self.catch_up is not None:
                    with contextlib.suppress(Problem):  # while the bus is out what is known holds
                        await self.catch_up()
                found = self.find(record.name)
                if found is None or found.record == record:
                    raise
                entry = found

    async def put(
        self, name: str, document: TopicDocument, expected: Precondition | None = None
    ) -> tuple[Entry, bool]:
        """Create a topic or replace its definition; returns it and whether it is new.

        The same definition twice changes nothing.

        Raises:
            Problem: topic-conflict for another key or a source while it holds messages,
                source-cycle, topic-unknown for a source that is not there, limit-reached,
                precondition-failed.
        """

        async def decide() -> tuple[Entry, bool]:
            known = self.find(name)
            if expected is not None:
                expected.check(known)
            wanted = resolved(name, document, self.document)
            if known is None:
                return await self._create(name, wanted), True
            if wanted != known.document:
                known = await self._replace(known, wanted)
            return known, False

        return await self._decided(decide)

    async def patch(
        self,
        name: str,
        change: Callable[[TopicDocument], TopicDocument],
        expected: Precondition,
    ) -> Entry:
        """Replace a definition by what becomes of it; in between nobody else does.

        Raises:
            Problem: topic-unknown, as `put`, or what `change` raises.
        """

        async def decide() -> Entry:
            known = self.get(name)
            expected.check(known)
            document = resolved(name, change(known.document), self.document)
            return known if document == known.document else await self._replace(known, document)

        return await self._decided(decide)

    async def get_or_create(self, name: str) -> Entry:
        """The topic of this name; a plain one is made where settings allow.

        Raises:
            Problem: topic-unknown, limit-reached.
        """
        found = self.find(name)
        if found is not None:
            return found
        if not self._settings.auto_create_topics:
            raise Problem("topic-unknown", "There is no topic of this name.")

        async def decide() -> Entry:  # it may be there by now, with a definition of its own
            return self.find(name) or await self._create(name, TopicDocument())

        return await self._decided(decide)

    async def delete(self, name: str, expected: Precondition | None = None) -> None:
        """Delete a topic; its subscriptions end with REMOVED.

        Raises:
            Problem: topic-unknown, topic-in-use, precondition-failed.
        """

        async def decide() -> None:
            entry = self.get(name)
            if expected is not None:
                expected.check(entry)
            if self.is_source(name):
                raise Problem("topic-in-use", "Another topic is filled from this one.")
            async with self.filling.unfilled(entry), entry.writing:
                await self._store.delete_topic(name)
                self.drop(entry)

        await self._decided(decide)

    async def _decided(self, decide: Callable[[], Awaitable[Decision]]) -> Decision:
        """What was decided while nobody else changed a topic, here or elsewhere.

        Nothing is refused for a definition that another gateway has changed by then.
        """
        may_look = self.catch_up is not None
        while True:
            try:
                async with self.changing:
                    return await decide()
            except DefinitionsMoved:
                pass
            except Problem as refusal:
                if not may_look or _may_have_effect(refusal):
                    raise
                may_look = False
            assert self.catch_up is not None, "only a shared store says so"
            await self.catch_up()

    async def _create(self, name: str, document: TopicDocument) -> Entry:
        if not name.startswith(OWN_PREFIX) and not self.has_room():
            raise Problem(
                "limit-reached",
                f"There are {self._settings.topics_max} topics already.",
                headers={"Retry-After": "60"},
            )
        self.filling.prepare(name, document)
        record = TopicRecord(name, document, _new_epoch())
        try:
            await self._store.put_topic(record)
        except Exception:
            await self.filling.stop(name)
            raise
        entry = self.admit(record)
        self.filling.start(entry)
        return entry

    async def _replace(self, known: Entry, document: TopicDocument) -> Entry:
        if document.identity != known.document.identity:
            has_messages = self._driver.engine.topic(known.record.name).head > 0
            self._check_identity(known, document, has_messages=has_messages)
            try:
                return await self._make_anew(known, document)
            except HeadMoved:  # another gateway has just taken one in
                self._check_identity(known, document, has_messages=True)
                raise
        async with self.filling.refilled(known, document), known.writing:
            has_messages = self._driver.engine.topic(known.record.name).head > 0
            check_source(known.document, document, has_messages=has_messages)
            record = TopicRecord(known.record.name, document, known.record.epoch)
            await self._store.put_topic(record)
            self.define(known, record)
        return known

    async def _make_anew(self, known: Entry, document: TopicDocument) -> Entry:
        """Another topic of that name, in a new epoch; it held no messages."""
        name = known.record.name
        async with self.filling.unfilled(known):
            self.filling.prepare(name, document)
            async with known.writing:
                record = TopicRecord(name, document, _new_epoch())
                await self._store.put_topic(record)
                entry = self.supersede(record)
        self.filling.start(entry)
        return entry

    def _check_identity(self, known: Entry, document: TopicDocument, *, has_messages: bool) -> None:
        """Whether a topic may get another key or type."""
        is_used = self.is_source(known.record.name)
        check_identity(known.document, document, has_messages=has_messages, is_used=is_used)


def _may_have_effect(refusal: Exception) -> bool:
    """Whether what was refused may have been written all the same."""
    if not isinstance(refusal, Problem) or isinstance(refusal, EpochMoved):
        return False
    return refusal.code == "bus-unavailable"


def _new_epoch() -> str:
    return secrets.token_hex(6)
