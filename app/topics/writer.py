"""The writer: the one way into a topic, for publishers, removals and fillers alike."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from tidegate.app.refusals import Unavailable
from tidegate.app.shielding import run_shielded
from tidegate.app.stores.items import Item, Message, MessageBlock, Removal, to_frames
from tidegate.app.stores.store import (
    Appended,
    Fill,
    HeadMoved,
    PastTime,
    Producer,
    Publication,
    Retry,
    Staged,
    Store,
)
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.registry import CatalogTopic, TopicRecreated
from tidegate.conflation.boards.board import THE_RECORD
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import Frame, RemovalReason
from tidegate.conflation.topics.feed import Feed
from tidegate.keys.text.duration import SECOND

Answer = TypeVar("Answer")


def run_at_once(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run work that waits for nothing to its end, without a task."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    work.close()
    raise RuntimeError("the work waits")


DECIDED_S_MAX = 2.0
"""How long a write is decided again while other gateways change its records."""

# A slice holds `writing`, and publishers wait for no more than that.
REMOVED_AT_ONCE = 500
# About a millisecond, in which streams wait.
FRAMED_AT_ONCE = 10_000
NO_HEAD = -1
"""No topic has this head: an append that expects it finds its duplicate, or writes nothing."""


class Writer:
    """Lets the store number what is written, then hands it to the engine in that order."""

    def __init__(self, store: Store, driver: Driver, arrivals: AppendWaiters | None = None) -> None:
        """`arrivals`: where gateways share the store, writes come back from there."""
        self._store = store
        self._driver = driver
        self._arrivals = arrivals

    async def write(
        self,
        entry: CatalogTopic,
        items: Sequence[Item],
        producer: Producer | None = None,
        *,
        retry: Retry | None = None,
        stages: Mapping[str, str] | None = None,
        epoch: str | None = None,
        expected_head: int | None = None,
        fence: int | None = None,
        fill: Fill | None = None,
    ) -> Appended:
        """Store and deliver items, all or none. The caller holds `entry.writing`.

        What has begun is finished, also where the caller is cancelled: the store never has what
        the engine has not. The last five are as of `Publication`.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            HeadMoved: records of these items have changed since the expected head, the topic is in
                another epoch or not where the fill begins, or another gateway has used up or
                replaced one of the stages.
            Refused: producer-fenced, idempotency-conflict, bus-unavailable.
        """
        name = self._current_name(entry)
        # The value travels with its removal, because a replay has no board to look it up on.
        given, items = items, valued(items, self._driver.engine.topic(name).sow)
        is_bound = expected_head is not None or fill is not None
        is_decided = is_bound and not _count_unmatched(items)
        if self._arrivals is not None and items is not given and not is_decided:
            # A record or a removal that another gateway has just acknowledged may not be here yet.
            await self.catch_up(entry)
            name = self._current_name(entry)
            items = valued(given, self._driver.engine.topic(name).sow)
        publication = Publication(
            items,
            self._driver.wall_ms(),
            producer,
            retry,
            stages or {},
            expected_head,
            fence,
            epoch,
            fill,
        )
        work = self._store_and_deliver(name, entry.record.epoch, publication)
        appended = await run_shielded(work)
        if items is given or appended.duplicate:
            return appended
        return replace(appended, unmatched=_count_unmatched(items))

    def write_at_once(self, entry: CatalogTopic, items: Sequence[Item]) -> Appended:
        """Store and deliver new messages in this iteration.

        Only if the store is immediate, `entry.writing` is free, and they are one slice of the
        driver (`publishes_at_once`).
        """
        publication = Publication(items, self._driver.wall_ms())
        work = self._store_and_deliver(entry.record.name, entry.record.epoch, publication)
        return run_at_once(work)

    async def write_decided(
        self,
        entry: CatalogTopic,
        decide: Callable[[], Awaitable[Sequence[Item]]],
        producer: Producer | None = None,
        *,
        retry: Retry | None = None,
        fence: int | None = None,
    ) -> Appended | None:
        """Store and deliver what `decide` makes of the board; return None if that is nothing.

        Each decision holds `entry.writing`. Where other gateways write too, it is repeated until
        none of its records changed in between, but not for ever: a gateway behind a slow link may
        never win.

        Raises:
            TopicUnknown, Refused: as `write`, and what `decide` raises; bus-unavailable, where
                other gateways changed the records in between for too long.
        """
        clock_s, ends_at_s = asyncio.get_running_loop().time, 0.0
        while True:
            async with entry.writing:
                ends_at_s = ends_at_s or clock_s() + DECIDED_S_MAX
                name, epoch = self._current_name(entry), entry.record.epoch
                head = self._driver.engine.topic(name).head
                items = await decide()
                if not items:
                    return None
                # Without others nothing comes between: `writing` is held since the decision.
                is_shared = self._arrivals is not None
                try:
                    return await self.write(
                        entry,
                        items,
                        producer,
                        retry=retry,
                        epoch=epoch if is_shared else None,
                        expected_head=head if is_shared else None,
                        fence=fence,
                    )
                except HeadMoved as moved:
                    head = moved.head
            if clock_s() > ends_at_s:
                detail = "Other gateways change these records faster than this one can decide."
                raise Unavailable(f"{detail} Nothing was stored; try again.")
            if head:
                # Decide again once their writes are on the board; publishers go on meanwhile.
                assert self._arrivals is not None, "nobody else moves the head"
                await self._arrivals.wait_reached(name, epoch, head)

    async def filled(self, entry: CatalogTopic) -> str:
        """Return the mark up to which a derived topic is filled; "" for one without.

        Raises:
            TopicUnknown, Refused: as `write`.
        """
        return await self._store.filled(entry.record.name)

    async def catch_up(self, entry: CatalogTopic, past: PastTime | None = None) -> None:
        """Wait until the engine has all that the store has now.

        A gateway that shares its store reads a topic's log a little later than another gateway's
        publisher got its answer.

        Args:
            entry: the topic.
            past: a time; if it is past, messages that are stored from now on are later.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Refused: bus-unavailable.
        """
        if self._arrivals is not None:
            await self._arrivals.catch_up(entry.record.name, entry.record.epoch, past)

    async def close_past(self, entry: CatalogTopic, time_ms: int) -> None:
        """Wait until the engine has every message of a topic with a time up to one that is past.

        Where gateways share the store, a time to come for this one's clock may be past.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Refused: bus-unavailable.
        """
        if self._arrivals is None:
            async with entry.writing:  # a write that is under way has its time already
                return
        await self.catch_up(entry, PastTime(time_ms, self._driver.wall_ms()))

    async def earlier(
        self,
        entry: CatalogTopic,
        producer: Producer | None = None,
        *,
        retry: Retry | None = None,
    ) -> Appended | None:
        """Return the first answer to a request that is retried; None for a new request.

        Publishes nothing. The caller holds `entry.writing`.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Refused: producer-fenced, idempotency-conflict, bus-unavailable.
        """
        name, now_ms = self._current_name(entry), self._driver.wall_ms()
        asked = Publication((), now_ms, producer, retry, expected_head=NO_HEAD)
        try:
            earlier = await self._store.append(name, asked)
        except HeadMoved:
            return None
        await self._deliver(name, entry.record.epoch, asked, earlier)
        return earlier

    async def stage(self, entry: CatalogTopic, stage: str, items: Sequence[Item]) -> None:
        """Keep items aside for an hour. The caller holds `entry.writing`.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Refused: bus-unavailable.
        """
        await self._store.stage(self._current_name(entry), stage, items, self._driver.wall_ms())

    async def staged(self, entry: CatalogTopic, stages: Sequence[str]) -> Staged | None:
        """Return what stages hold; None if one does not exist.

        Raises:
            TopicUnknown: the topic was deleted meanwhile.
            Refused: bus-unavailable.
        """
        return await self._store.staged(self._current_name(entry), stages, self._driver.wall_ms())

    async def remove(
        self,
        entry: CatalogTopic,
        records: Sequence[Frame],
        reason: RemovalReason,
        fence: int | None = None,
        still: Callable[[], bool] | None = None,
    ) -> int:
        """Remove records that have not changed since; return how many they were.

        Raises:
            TopicUnknown, Refused: as `removals`.
        """
        removals = self.removals(entry, records, reason, fence, still)
        return sum([count async for count in removals])

    async def removals(
        self,
        entry: CatalogTopic,
        records: Sequence[Frame],
        reason: RemovalReason,
        fence: int | None = None,
        still: Callable[[], bool] | None = None,
    ) -> AsyncIterator[int]:
        """Remove records that have not changed since, in slices; yield how many each removed.

        Publishers come in between; records that they publish meanwhile stay. Changes of the topic
        do, too: all stay once `still` says no.

        Raises:
            TopicUnknown: the topic was deleted, or began again, meanwhile.
            Refused: as `write_decided`.
        """
        removed, epoch = 0, entry.record.epoch
        for start in range(0, len(records), REMOVED_AT_ONCE):
            piece = records[start : start + REMOVED_AT_ONCE]

            async def decide(
                piece: Sequence[Frame] = piece, removed: int = removed
            ) -> Sequence[Item]:
                # What earlier slices removed may be there again: the bus has lost something.
                if removed and entry.record.epoch != epoch:
                    raise TopicRecreated("the topic began again while records were removed")
                return self._still(entry, piece, reason) if still is None or still() else ()

            gone = await self.write_decided(entry, decide, fence=fence)
            count = 0 if gone is None else gone.last - gone.first + 1
            removed += count
            yield count
            await asyncio.sleep(0)  # `writing` is free here: waiting publishers come first

    def _still(
        self, entry: CatalogTopic, records: Sequence[Frame], reason: RemovalReason
    ) -> Sequence[Item]:
        """Return removals of the records that have not changed since."""
        sow = self._driver.engine.topic(entry.record.name).sow
        if sow is None:
            return ()
        board = sow.board
        return [
            Removal(it.key, reason)
            for it in records
            if _is_same(it, board.get(it.key or THE_RECORD))
        ]

    async def _store_and_deliver(self, name: str, epoch: str, publication: Publication) -> Appended:
        """Let the store append, and wait until the engine has it; record how long each took."""
        figures, began = self._driver.figures, self._driver.now()
        try:
            appended = await self._store.append(name, publication)
        except Unavailable:
            figures.store_failures += 1
            raise
        finally:
            figures.append.note((self._driver.now() - began) / SECOND)
        await self._deliver(name, epoch, publication, appended)
        if not appended.duplicate:
            figures.publish.note((self._driver.now() - began) / SECOND)
        return appended

    async def _deliver(
        self, name: str, epoch: str, publication: Publication, appended: Appended
    ) -> None:
        """Wait until the engine has what was stored, perhaps by way of the bus.

        Raises:
            Refused: bus-unavailable; whether it is there is not known.
        """
        if self._arrivals is not None:
            # A topic that another gateway has deleted since was written to before that, as one is
            # whose deletion waits for `writing`.
            with contextlib.suppress(TopicUnknown):
                # The store knows of a numbered duplicate that it is there, and not where.
                last = appended.last or await self._arrivals.shared_head(name, None)
                await self._arrivals.wait_reached(name, epoch, last)
        elif not appended.duplicate and publication.items:
            items, now_ms = publication.items, publication.timestamp_ms
            await self._driver.publish(name, await _framed(items, appended.first, now_ms))

    def _current_name(self, entry: CatalogTopic) -> str:
        """Return the name of a topic, if the entry is still its current one."""
        assert entry.writing.locked(), "one writer at a time"
        name = entry.record.name
        if self._driver.engine.topic(name).epoch != entry.record.epoch:
            raise TopicRecreated("the topic was deleted and recreated meanwhile")
        return name


def _is_same(given: Frame, there: Frame | None) -> bool:
    """Return True if a record has not changed; one that was read again from the bus is equal."""
    # Offset and value: a frame that came back from the bus is another object.
    if there is None or there is given:
        return there is given
    return (there.offset, there.payload) == (given.offset, given.payload)


def valued(items: Sequence[Item], sow: Feed | None) -> Sequence[Item]:
    """Return items whose removals have the value that they remove, even of the same request."""
    # The engine fills them in again (`Topic.publish`): where gateways share the store, other writes
    # may come before these, and only the engine sees the final order.
    if sow is None or isinstance(items, MessageBlock):
        return items
    if not any(isinstance(item, Removal) for item in items):
        return items
    newest: dict[str, bytes] = {}
    found: list[Item] = []
    for item in items:
        if isinstance(item, Removal):
            record = sow.board.get(item.record_key or THE_RECORD)
            payload = newest.get(item.record_key, b"" if record is None else record.payload)
            item = msgspec.structs.replace(item, payload=payload)
        newest[item.record_key] = item.payload if isinstance(item, Message) else b""
        found.append(item)
    return found


def _count_unmatched(items: Sequence[Item]) -> int:
    """Return how many removals found no record; `valued` gave all others its value."""
    return sum(isinstance(item, Removal) and not item.payload for item in items)


async def _framed(items: Sequence[Item], first: int, now_ms: int) -> list[Frame]:
    """Frame items as `to_frames` does; a large request yields to the loop."""
    if len(items) <= FRAMED_AT_ONCE:
        return to_frames(items, first, now_ms)
    frames: list[Frame] = []
    for start in range(0, len(items), FRAMED_AT_ONCE):
        frames += to_frames(items[start : start + FRAMED_AT_ONCE], first + start, now_ms)
        await asyncio.sleep(0)
    return frames
