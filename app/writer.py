"""The writer: the one way into a topic, for publishers, removals and fillers alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from app.arrivals import Arrivals
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


class BegunAnew(TopicUnknown):
    """Another topic has the name by now; nothing was written."""


class Writer:
    """Has the store number what is written, then hands it to the engine in that order."""

    def __init__(self, store: Store, driver: Driver, arrivals: Arrivals | None = None) -> None:
        """`arrivals` where gateways share the store: what is written comes back from there."""
        self._store = store
        self._driver = driver
        self._arrivals = arrivals

    async def write(
        self,
        entry: Entry,
        items: Sequence[Item],
        producer: Producer | None = None,
        *,
        retry: Retry | None = None,
        stages: Sequence[str] = (),
        expected_head: int | None = None,
        fence: int | None = None,
    ) -> Appended:
        """Store and deliver items, all or none. The caller holds `entry.writing`.

        What has begun is finished, also where the caller is cancelled: the store never has what
        the engine has not. The last two are as of `Publication`.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            HeadMoved: there is more than the expected head.
            Problem: producer-fenced, idempotency-conflict, bus-unavailable.
        """
        name = self._alive(entry)
        items = valued(items, self._driver.engine.topic(name).sow)
        publication = Publication(
            items, self._driver.wall_ms(), producer, retry, stages, expected_head, fence
        )
        return await finished(self._published(name, entry.record.epoch, publication))

    async def write_decided(
        self,
        entry: Entry,
        decide: Callable[[], Awaitable[Sequence[Item]]],
        producer: Producer | None = None,
        *,
        retry: Retry | None = None,
        fence: int | None = None,
    ) -> Appended | None:
        """Store and deliver what is decided by a look at the board; None if that is nothing.

        Where other gateways write too it is decided anew until nothing came in between.

        Raises:
            TopicUnknown, Problem: as `write`, and what `decide` raises.
        """
        while True:
            name = self._alive(entry)
            head = self._driver.engine.topic(name).head
            items = await decide()
            if not items:
                return None
            if self._arrivals is None:
                return await self.write(entry, items, producer, retry=retry, fence=fence)
            try:
                return await self.write(
                    entry, items, producer, retry=retry, expected_head=head, fence=fence
                )
            except HeadMoved:
                await self._arrivals.reached(name, entry.record.epoch, head + 1)

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
            earlier = await self._store.append(name, asked)
        except HeadMoved:
            return None
        await self._delivered(name, entry.record.epoch, asked, earlier)
        return earlier

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

    async def remove(
        self, entry: Entry, records: Sequence[Frame], reason: Gone, fence: int | None = None
    ) -> int:
        """Remove records that are still as they are given; returns how many there were.

        In slices, between which publishers have their turn; what they publish meanwhile stays.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
        """
        removed = 0
        for start in range(0, len(records), REMOVED_AT_ONCE):
            piece = records[start : start + REMOVED_AT_ONCE]

            async def decide(piece: Sequence[Frame] = piece) -> Sequence[Item]:
                return self._still(entry, piece, reason)

            async with entry.writing:
                gone = await self.write_decided(entry, decide, fence=fence)
            removed += 0 if gone is None else gone.last - gone.first + 1
            await asyncio.sleep(0)
        return removed

    def _still(self, entry: Entry, records: Sequence[Frame], reason: Gone) -> Sequence[Item]:
        """Removals of those records that are as they are given."""
        sow = self._driver.engine.topic(entry.record.name).sow
        if sow is None:
            return ()
        board = sow.board
        return [
            Removal(it.key, reason)
            for it in records
            if _is_same(it, board.get(it.key or THE_RECORD))
        ]

    async def _published(self, name: str, epoch: str, publication: Publication) -> Appended:
        began = self._driver.now()
        appended = await self._append(name, publication)
        await self._delivered(name, epoch, publication, appended)
        if not appended.duplicate:
            self._driver.figures.publish.note_ns(self._driver.now() - began)
        return appended

    async def _delivered(
        self, name: str, epoch: str, publication: Publication, appended: Appended
    ) -> None:
        """Until the engine has what was stored, be it that it comes back from the bus."""
        if self._arrivals is not None:
            await self._arrivals.reached(name, epoch, appended.last)
        elif not appended.duplicate:
            items, now_ms = publication.items, publication.timestamp_ms
            await self._driver.publish(name, await _framed(items, appended.first, now_ms))

    def _alive(self, entry: Entry) -> str:
        """The name of a topic that is still what the entry says."""
        assert entry.writing.locked(), "one writer at a time"
        name = entry.record.name
        if self._driver.engine.topic(name).epoch != entry.record.epoch:
            raise BegunAnew("the topic was deleted meanwhile")
        return name


def _is_same(given: Frame, there: Frame | None) -> bool:
    """Whether a record is as it was; a topic that was taken anew from the bus has equal ones."""
    if there is None or there is given:
        return there is given
    return (there.offset, there.payload) == (given.offset, given.payload)


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
