"""The catalog: the topics there are, kept in step with the store and the engine."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from app.driver import Driver
from app.entry import Entry
from app.filler import Fillers, wanted
from app.problems import Problem
from app.query import OWN_PREFIX
from app.settings import Settings
from app.stores.shared import DefinitionsMoved
from app.stores.store import HeadMoved, Kept, Store, TopicRecord
from app.topic_document import TopicDocument
from app.topic_graph import check_identity, is_source, resolved

ENDED_EPOCHS_MAX = 1_000

Decision = TypeVar("Decision")


class Catalog:
    """Topics by name. Changes are made one at a time and are whole or not at all.

    `changing` is held meanwhile. Where gateways share the store, `catch_up` takes over what others
    have written, and what was decided beside that is decided anew.
    """

    def __init__(self, store: Store, driver: Driver, fillers: Fillers, settings: Settings) -> None:
        self._store = store
        self._driver = driver
        self._fillers = fillers
        self._settings = settings
        self._entries: dict[str, Entry] = {}
        self._ended: deque[str] = deque(maxlen=ENDED_EPOCHS_MAX)
        self._listeners: dict[Callable[[str], None], None] = {}
        self.changing = asyncio.Lock()
        self.catch_up: Callable[[], Awaitable[None]] | None = None

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call it with the name of each topic that is made from now on."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[str], None]) -> None:
        """Call it no more."""
        self._listeners.pop(listener, None)

    async def open(self) -> None:
        """Take over what the store has."""
        for record in await self._store.records():
            self._restore(record, await self._store.kept(record.name))
        await self.begin_filling()  # now that every source is there

    def get(self, name: str) -> Entry:
        """The topic of this name.

        Raises:
            Problem: topic-unknown.
        """
        found = self._entries.get(name)
        if found is None:
            raise Problem("topic-unknown", "There is no topic of this name.")
        return found

    def find(self, name: str) -> Entry | None:
        """The topic of this name, if there is one."""
        return self._entries.get(name)

    async def newer(self, record: TopicRecord) -> Entry | None:
        """The topic as it is by now, if it is there and is not this any more.

        Raises:
            Problem: bus-unavailable.
        """
        if self.catch_up is not None:
            await self.catch_up()
        found = self._entries.get(record.name)
        return None if found is None or found.record == record else found

    def entries(self) -> list[Entry]:
        """Every topic there is now, the gateway's own too."""
        return list(self._entries.values())

    def has_ended(self, epoch: str) -> bool:
        """Whether the topic of this epoch was deleted, as far back as is remembered."""
        return epoch in self._ended

    def listed(self, prefix: str, after: str, limit: int) -> Iterator[Entry]:
        """Topics by name, at most `limit` from behind `after`.

        The gateway's own are listed only where the prefix says that they are meant.
        """
        hides_own = not prefix.startswith(OWN_PREFIX)
        names = sorted(
            name
            for name in self._entries
            if name.startswith(prefix)
            and name > after
            and not (hides_own and name.startswith(OWN_PREFIX))
        )
        return (self._entries[name] for name in names[:limit])

    async def put(
        self, name: str, document: TopicDocument, expected: Precondition | None = None
    ) -> tuple[Entry, bool]:
        """Create a topic or replace its definition; returns it and whether it is new.

        The same definition twice changes nothing.

        Raises:
            Problem: topic-conflict for another key while it holds messages, source-cycle,
                topic-unknown for a source that is not there, limit-reached,
                precondition-failed.
        """

        async def decide() -> tuple[Entry, bool]:
            known = self._entries.get(name)
            if expected is not None:
                expected.check(known)
            wanted = resolved(name, document, self._document)
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
            document = resolved(name, change(known.document), self._document)
            return known if document == known.document else await self._replace(known, document)

        return await self._decided(decide)

    async def get_or_create(self, name: str) -> Entry:
        """The topic of this name; a plain one is made where settings allow.

        Raises:
            Problem: topic-unknown, limit-reached.
        """
        found = self._entries.get(name)
        if found is not None:
            return found
        if not self._settings.auto_create_topics:
            raise Problem("topic-unknown", "There is no topic of this name.")

        async def decide() -> Entry:  # it may be there by now, with a definition of its own
            return self._entries.get(name) or await self._create(name, TopicDocument())

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
            if self._is_source(name):
                raise Problem("topic-in-use", "Another topic is filled from this one.")
            async with self._unfilled(entry), entry.writing:
                await self._store.delete_topic(name)
                self._drop(entry)

        await self._decided(decide)

    # What another gateway has written; the caller holds `changing`

    async def begin_filling(self) -> None:
        """It is this gateway's turn to fill topics."""
        async with self.changing:
            for entry in self._entries.values():
                self._prepare_filler(entry.record.name, entry.document)
                self._fillers.start(entry)

    async def end_filling(self) -> None:
        """It is another's."""
        async with self.changing:
            await self._fillers.aclose()

    async def adopt(self, record: TopicRecord, kept: Kept) -> None:
        """A topic is there that was made elsewhere, with what is kept of it."""
        entry = self._restore(record, kept)
        self._prepare_filler(record.name, record.document)
        self._fillers.start(entry)

    async def redefine(self, known: Entry, document: TopicDocument) -> None:
        """A topic has got another document of the same identity elsewhere."""
        async with self._refilled(known, document), known.writing:
            self._define(known, TopicRecord(known.record.name, document, known.record.epoch))

    async def forget(self, known: Entry) -> None:
        """A topic was deleted elsewhere; its subscriptions end with REMOVED here too."""
        async with self._unfilled(known), known.writing:
            self._drop(known)

    def renew(self, record: TopicRecord, kept: Kept) -> None:
        """A topic begins again in this epoch; whoever subscribes stays. No lock is needed."""
        entry = self._entries.get(record.name)
        if entry is not None:
            entry.redefine(record)
            driver = self._driver
            now, now_ms = driver.now(), driver.wall_ms()
            driver.engine.renew_topic(record.name, record.epoch, kept, now, now_ms)
            driver.settle()

    async def _decided(self, decide: Callable[[], Awaitable[Decision]]) -> Decision:
        """What was decided while nobody else changed a topic, here or elsewhere."""
        while True:
            try:
                async with self.changing:
                    return await decide()
            except DefinitionsMoved:
                assert self.catch_up is not None, "only a shared store says so"
                await self.catch_up()

    async def _create(self, name: str, document: TopicDocument) -> Entry:
        if not name.startswith(OWN_PREFIX) and len(self._entries) >= self._topics_max():
            raise Problem(
                "limit-reached",
                f"There are {self._settings.topics_max} topics already.",
                headers={"Retry-After": "60"},
            )
        self._prepare_filler(name, document)
        record = TopicRecord(name, document, _new_epoch())
        try:
            await self._store.put_topic(record)
        except Exception:
            await self._fillers.stop(name)
            raise
        entry = self._admit(record)
        self._fillers.start(entry)
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
        name = known.record.name
        async with self._refilled(known, document), known.writing:
            record = TopicRecord(name, document, known.record.epoch)
            await self._store.put_topic(record)
            self._define(known, record)
        return known

    def _define(self, known: Entry, record: TopicRecord) -> None:
        known.redefine(record)
        definition = record.document.definition(self._settings)
        self._driver.define_topic(record.name, definition, record.epoch)

    def _drop(self, entry: Entry) -> None:
        del self._entries[entry.record.name]
        self._ended.append(entry.record.epoch)
        self._driver.drop_topic(entry.record.name)

    async def _make_anew(self, known: Entry, document: TopicDocument) -> Entry:
        """Another topic of that name, in a new epoch; it held no messages."""
        name = known.record.name
        async with self._unfilled(known):
            self._prepare_filler(name, document)
            async with known.writing:
                record = TopicRecord(name, document, _new_epoch())
                await self._store.put_topic(record)
                self._driver.drop_topic(name)
                entry = self._admit(record)
        self._fillers.start(entry)
        return entry

    @asynccontextmanager
    async def _refilled(self, known: Entry, document: TopicDocument) -> AsyncIterator[None]:
        """Have the topic filled as its new definition says from when that holds, no sooner."""
        name, old, new = known.record.name, known.document.gateway_source, document.gateway_source
        if old == new:
            yield
        elif old is not None and new is not None and old.topic == new.topic:
            wanted(self._driver, new, document.key_spec)  # what cannot be asked is refused here
            yield
            self._fillers.change(name, new, document.key_spec)
        else:
            async with self._unfilled(known):
                self._prepare_filler(name, document)
                yield
            self._fillers.start(known)

    @asynccontextmanager
    async def _unfilled(self, known: Entry) -> AsyncIterator[None]:
        """Nobody fills the topic while it changes; if that fails it is filled as it was."""
        name = known.record.name
        await self._fillers.stop(name)
        try:
            yield
        except BaseException:
            await self._fillers.stop(name)
            self._prepare_filler(name, known.document)
            self._fillers.start(known)
            raise

    def _topics_max(self) -> int:
        own = sum(name.startswith(OWN_PREFIX) for name in self._entries)
        return own + self._settings.topics_max

    def _prepare_filler(self, name: str, document: TopicDocument) -> None:
        source = document.gateway_source
        if source is not None:
            self._fillers.prepare(name, source, document.key_spec)

    def _check_identity(self, known: Entry, document: TopicDocument, *, has_messages: bool) -> None:
        """Whether a topic may get another key or type."""
        is_used = self._is_source(known.record.name)
        check_identity(known.document, document, has_messages=has_messages, is_used=is_used)

    def _is_source(self, name: str) -> bool:
        return is_source(name, (entry.document for entry in self._entries.values()))

    def _admit(self, record: TopicRecord) -> Entry:
        entry = Entry(record)
        definition = record.document.definition(self._settings)
        self._driver.define_topic(record.name, definition, record.epoch)
        self._entries[record.name] = entry
        for listener in list(self._listeners):
            listener(record.name)
        return entry

    def _restore(self, record: TopicRecord, kept: Kept) -> Entry:
        entry = self._admit(record)
        entry.checkpointed = kept.through
        self._driver.restore_topic(record.name, kept)
        return entry

    def _document(self, name: str) -> TopicDocument | None:
        found = self._entries.get(name)
        return None if found is None else found.document


def _new_epoch() -> str:
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class Precondition:
    """`If-Match` and `If-None-Match: *` of a change."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check(self, entry: Entry | None) -> None:
        """Whether the change may go on.

        Raises:
            Problem: precondition-failed.
        """
        if self.if_match is not None:
            wanted = {tag.strip() for tag in self.if_match.split(",")}
            if entry is None or not wanted & {"*", entry.etag}:
                raise Problem("precondition-failed", "The topic is not what If-Match names.")
        if self.if_none_match is not None and entry is not None:
            wanted = {tag.strip().removeprefix("W/") for tag in self.if_none_match.split(",")}
            if wanted & {"*", entry.etag}:
                raise Problem("precondition-failed", "The topic is there already.")
