"""The writer: the one way into a topic, for publishers, removals and fillers alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from app.driver import Driver
from app.entry import Entry
from app.problems import Problem
from app.steadfast import finished
from app.stores.packing import frames_of
from app.stores.store import (
    Appended,
    HeadMoved,
    Item,
    Producer,
    Publication,
    Removal,
    Retry,
    Store,
)
from conflation.boards.screen import THE_RECORD
from conflation.errors import TopicUnknown
from conflation.frame import Frame, Gone
from conflation.topics.feed import Feed

REMOVED_AT_ONCE = 500
FRAMED_AT_ONCE = 10_000
NO_HEAD = -1


class Writer:
    """Has the store number what is written, then hands it to the engine in that order."""

    def __init__(self, store: Store, driver: Driver) -> None:
        self._store = store
        self._driver = driver

    async def write(
        self,
        entry: Entry,
        items: Sequence[Item],
        producer: Producer | None = None,
        *,
        retry: Retry | None = None,
        stages: Sequence[str] = (),
    ) -> Appended:
        """Store and deliver items, all or none. The caller holds `entry.writing`.

        What has begun is finished, also where the caller is cancelled: the store never has what
        the engine has not.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Problem: producer-fenced, idempotency-conflict, bus-unavailable.
        """
        name = self._alive(entry)
        items = valued(items, self._driver.engine.topic(name).sow)
        publication = Publication(items, self._driver.wall_ms(), producer, retry, stages)
        return await finished(self._published(name, publication))

    async def earlier(
        self,
        entry: Entry,
        producer: Producer | None = None,
        *,
        retry: Retry | None = None,
        stages: Sequence[str] = (),
    ) -> Appended | None:
        """What a request was answered that came before; None of a new one. Nothing is published.

        The caller holds `entry.writing`.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Problem: producer-fenced, idempotency-conflict, bus-unavailable.
        """
        name, now_ms = self._alive(entry), self._driver.wall_ms()
        asked = Publication((), now_ms, producer, retry, stages, expected_head=NO_HEAD)
        try:
            return await self._store.append(name, asked)
        except HeadMoved:
            return None

    async def stage(self, entry: Entry, stage: str, items: Sequence[Item]) -> None:
        """Keep items aside for an hour. The caller holds `entry.writing`.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Problem: bus-unavailable.
        """
        await self._store.stage(self._alive(entry), stage, items, self._driver.wall_ms())

    async def staged(self, entry: Entry, stages: Sequence[str]) -> list[Item] | None:
        """What stages hold, in the order of their names; None if one is not there (any more).

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Problem: bus-unavailable.
        """
        return await self._store.staged(self._alive(entry), stages, self._driver.wall_ms())

    async def _append(self, name: str, publication: Publication) -> Appended:
        """Have the store do its part, and note how long that took, or that it could not."""
        figures, began = self._driver.figures, self._driver.now()
        try:
            return await self._store.append(name, publication)
        except Problem as problem:
            figures.store_failures += problem.code == "bus-unavailable"
            raise
        finally:
            figures.append.note_ns(self._driver.now() - began)

    async def remove(self, entry: Entry, records: Sequence[Frame], reason: Gone) -> int:
        """Remove records that are still as they are given; returns how many there were.

        In slices, between which publishers have their turn; what they publish meanwhile stays.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
        """
        removed = 0
        for start in range(0, len(records), REMOVED_AT_ONCE):
            async with entry.writing:
                sow = self._driver.engine.topic(entry.record.name).sow
                if sow is None:
                    break
                still = [
                    Removal(record.key, reason)
                    for record in records[start : start + REMOVED_AT_ONCE]
                    if sow.board.get(record.key or THE_RECORD) is record
                ]
                if still:
                    await self.write(entry, still)
            removed += len(still)
            await asyncio.sleep(0)
        return removed

    async def _published(self, name: str, publication: Publication) -> Appended:
        began = self._driver.now()
        appended = await self._append(name, publication)
        if not appended.duplicate:
            items, now_ms = publication.items, publication.timestamp_ms
            await self._driver.publish(name, await _framed(items, appended.first, now_ms))
            self._driver.figures.publish.note_ns(self._driver.now() - began)
        return appended

    def _alive(self, entry: Entry) -> str:
        """The name of a topic that is still what the entry says."""
        assert entry.writing.locked(), "one writer at a time"
        name = entry.record.name
        if self._driver.engine.topic(name).epoch != entry.record.epoch:
            raise TopicUnknown("the topic was deleted meanwhile")
        return name


def valued(items: Sequence[Item], sow: Feed | None) -> Sequence[Item]:
    """Items whose removals have the value that they take away, be it of the same request."""
    if sow is None or not any(isinstance(item, Removal) for item in items):
        return items
    newest: dict[str, bytes] = {}
    found: list[Item] = []
    for item in items:
        if isinstance(item, Removal):
            record = sow.board.get(item.record_key or THE_RECORD)
            payload = newest.get(item.record_key, b"" if record is None else record.payload)
            item = msgspec.structs.replace(item, payload=payload)
        newest[item.record_key] = item.payload
        found.append(item)
    return found


async def _framed(items: Sequence[Item], first: int, now_ms: int) -> list[Frame]:
    """As `frames_of`; a large request leaves the loop room to breathe."""
    frames: list[Frame] = []
    for start in range(0, len(items), FRAMED_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        frames += frames_of(items[start : start + FRAMED_AT_ONCE], first + start, now_ms)
    return frames
