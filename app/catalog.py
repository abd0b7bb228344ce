"""The catalog: the topics there are, kept in step with the store and the engine."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.driver import Driver
from app.problems import Problem
from app.settings import Settings
from app.store import Store, TopicRecord
from app.topic_document import TopicDocument
from keys.extract import KeyOf, record_key

ENDED_EPOCHS_MAX = 1_000


@dataclass(slots=True)
class Entry:
    """A topic as the routes use it; `writing` keeps its messages in the store's order."""

    record: TopicRecord
    key_of: KeyOf | None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def document(self) -> TopicDocument:
        """Its definition."""
        return self.record.document

    @property
    def etag(self) -> str:
        """Its definition's entity tag."""
        return self.document.etag(self.record.epoch)


class Catalog:
    """Topics by name. Changes are made one at a time and are whole or not at all."""

    def __init__(self, store: Store, driver: Driver, settings: Settings) -> None:
        self._store = store
        self._driver = driver
        self._settings = settings
        self._entries: dict[str, Entry] = {}
        self._ended: deque[str] = deque(maxlen=ENDED_EPOCHS_MAX)
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Take over what the store has."""
        for record in await self._store.records():
            self._admit(record)

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

    def has_ended(self, epoch: str) -> bool:
        """Whether the topic of this epoch was deleted, as far back as is remembered."""
        return epoch in self._ended

    def listed(self, prefix: str, after: str, limit: int) -> Iterator[Entry]:
        """Topics by name, at most `limit` from behind `after`."""
        names = sorted(n for n in self._entries if n.startswith(prefix) and n > after)
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
        async with self._changing:
            known = self._entries.get(name)
            if expected is not None:
                expected.check(known)
            self._check_source(name, document)
            if known is None:
                return await self._create(name, document), True
            if document != known.document:
                known = await self._replace(known, document)
            return known, False

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
        async with self._changing:  # it may be there by now, with a definition of its own
            return self._entries.get(name) or await self._create(name, TopicDocument())

    async def delete(self, name: str, expected: Precondition | None = None) -> None:
        """Delete a topic; its subscriptions end with REMOVED.

        Raises:
            Problem: topic-unknown, topic-in-use, precondition-failed.
        """
        async with self._changing:
            entry = self.get(name)
            if expected is not None:
                expected.check(entry)
            sources = (e.document.source for e in self._entries.values())
            if any(source is not None and source.topic == name for source in sources):
                raise Problem("topic-in-use", "Another topic is filled from this one.")
            async with entry.writing:
                await self._store.delete_topic(name)
                del self._entries[name]
                self._ended.append(entry.record.epoch)
                self._driver.drop_topic(name)

    async def _create(self, name: str, document: TopicDocument) -> Entry:
        if len(self._entries) >= self._settings.topics_max:
            raise Problem(
                "limit-reached",
                f"There are {self._settings.topics_max} topics already.",
                headers={"Retry-After": "60"},
            )
        record = TopicRecord(name, document, _new_epoch())
        await self._store.put_topic(record)
        return self._admit(record)

    async def _replace(self, known: Entry, document: TopicDocument) -> Entry:
        name, same_key = known.record.name, document.key_spec == known.document.key_spec
        async with known.writing:
            if not same_key and self._driver.engine.topic(name).head:
                raise Problem(
                    "topic-conflict",
                    "The key of a topic that holds messages stays; delete the topic first.",
                    pointer="/key",
                )
            epoch = known.record.epoch if same_key else _new_epoch()
            record = TopicRecord(name, document, epoch)
            await self._store.put_topic(record)
            if not same_key:
                self._driver.drop_topic(name)
                return self._admit(record)
            known.record = record
            self._driver.define_topic(name, document.definition(self._settings), record.epoch)
        return known

    def _admit(self, record: TopicRecord) -> Entry:
        spec = record.document.key_spec
        entry = Entry(record, record_key(spec) if spec else None)
        definition = record.document.definition(self._settings)
        self._driver.define_topic(record.name, definition, record.epoch)
        self._entries[record.name] = entry
        return entry

    def _check_source(self, name: str, document: TopicDocument) -> None:
        source = document.source
        seen = {name}
        while source is not None:
            if source.topic in seen:
                raise Problem(
                    "source-cycle",
                    "The topic would be filled from itself.",
                    pointer="/source/topic",
                )
            seen.add(source.topic)
            found = self._entries.get(source.topic)
            if found is None:
                raise Problem(
                    "topic-unknown", "The source topic is not there.", pointer="/source/topic"
                )
            source = found.document.source


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
            wanted = {tag.strip() for tag in self.if_none_match.split(",")}
            if wanted & {"*", entry.etag}:
                raise Problem("precondition-failed", "The topic is there already.")
