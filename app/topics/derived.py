"""Derived topics: conflated topics and views, filled from their sources by inner sessions.

An inner session subscribes to the source like any other; its rows are published into the derived
topic. Each write is stored with the place in the source up to which the topic is filled then, so
whoever fills it next goes on there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from tidegate.app.definitions.fields import TopicSource
from tidegate.app.definitions.graph import has_same_source
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Item, Message, Removal
from tidegate.app.stores.store import Fill, HeadMoved
from tidegate.app.streams.driver import Consumer, Driver
from tidegate.app.timers import Backoff
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.boards.board import THE_RECORD, Board
from tidegate.conflation.errors import EngineError, TopicUnknown
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import (
    CloseReason,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    ResumeMode,
    Rows,
    Unsubscribed,
)
from tidegate.conflation.subscription import Command, NotFound, Replay, Subscription
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.errors import BookmarkInvalid, KeysError
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND

NAME = "source"
TAKEN_BYTES_AT_ONCE = 1 << 20
HELD_BYTES_MAX = 16 << 20
"""The most that is kept of a flush until its end tells the place that it reaches."""
WAIT_S_MAX = 3_600.0  # rows and a stop wake the task; the wait only needs some bound
RETRY_S = 1.0

logger = logging.getLogger("tidegate.filler")


class RowWriter(Protocol):
    """The part of `Writer` that fills topics."""

    async def fill(
        self, entry: CatalogTopic, items: Sequence[Item], fill: Fill, fence: int | None = None
    ) -> None:
        """Store and deliver items of a source, once."""

    async def filled(self, entry: CatalogTopic) -> str:
        """Return the mark up to which a topic is filled."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a topic is filled: a place in its source, and the name of the write that went there.

    `text` is as stores keep it, "" for a topic into which nothing was filled.
    """

    text: str = ""

    @property
    def place(self) -> Bookmark | None:
        """The place in the source; None if it is not known."""
        try:
            return Bookmark.parse(self.text.partition(" ")[0])
        except BookmarkInvalid:
            return None

    def then(self, place: Bookmark | None) -> Mark:
        """Return the mark of a write that goes to this place; no other write has the same."""
        return Mark(f"{place or self.place or '-'} {secrets.token_hex(8)}")


class DerivedTopic:
    """Fills one topic from its source while this gateway is the leader, until it is stopped.

    A topic that keeps the records of a source with records begins with a comparison: records that
    it has already are not published again, records that the source no longer has are removed. Any
    other goes on where it is in the source. So it can begin again at any time, and does whenever a
    write fails: what it has taken and not written comes again.

    Attributes:
        reason: why it is not filled now; "" while it is.
    """

    def __init__(
        self,
        driver: Driver,
        writer: RowWriter,
        append_waiters: AppendWaiters,
        leadership: Leadership,
        entry: CatalogTopic,
        session: str,
    ) -> None:
        self.reason = ""
        self._driver = driver
        self._writer = writer
        self._append_waiters = append_waiters
        self._leadership = leadership
        self._entry = entry
        self._session = session
        self._consumer: Consumer | None = None
        self._mark = Mark()
        self._compares = False
        self._seen: set[str] | None = None
        self._stopped = False
        self._task = asyncio.create_task(self._run(), name=f"fill {entry.record.name}")

    def change(self, source: TopicSource, key_spec: KeySpec) -> None:
        """Change interval, filter or projection of the same source; queued rows are kept.

        Raises:
            EngineError: the source cannot be asked this; all is as it was.
        """
        if self._consumer is not None:  # otherwise it begins with these
            self._driver.change(self._session, NAME, wanted(self._driver, source, key_spec))

    async def stop(self) -> None:
        """Stop filling; a write that has begun ends first."""
        self._stopped = True
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        backoff = Backoff(RETRY_S)
        while not self._stopped:
            try:
                await self._leadership.begins()
                source = await self._begin()
                self.reason = ""
                backoff.succeeded()
                if not await self._fill(source):
                    return
            except HeadMoved:  # another gateway was the leader, or the topic has lost something
                await backoff.pause()
            except Exception as error:
                self._note(error, backoff.level)
                await backoff.pause()
            finally:
                self._end()

    def _note(self, error: Exception, level: int) -> None:
        """Log why the topic is not filled."""
        is_foreseen = isinstance(error, EngineError | KeysError | Refused)
        if isinstance(error, TopicUnknown):
            self.reason = f"its source {_source_of(self._entry).topic} is not served here"
        elif isinstance(error, EngineError | KeysError):
            self.reason = error.detail
        text, name = "%s is not filled, tried again: %s", self._entry.record.name
        logger.log(level, text, name, self.reason or error, exc_info=not is_foreseen)

    async def _begin(self) -> Topic:
        """Subscribe to the source, once this gateway has all of both topics; return the source.

        Compared with a part of a topic, records would be removed, or written again.
        """
        entry, engine = self._entry, self._driver.engine
        # First: what another gateway writes after that makes the first write fail.
        self._mark = Mark(await self._writer.filled(entry))
        for name in (_source_of(entry).topic, entry.record.name):
            await self._append_waiters.catch_up(name, engine.topic(name).epoch)
        source = _source_of(entry)
        topic, key_spec = engine.topic(source.topic), entry.document.key_spec
        start = self._start(topic)
        self._compares, self._seen = start is None, None
        subscription = wanted(self._driver, source, key_spec, start)
        self._consumer = self._driver.open(self._session)
        self._driver.subscribe(self._session, NAME, subscription)
        return topic

    def _end(self) -> None:
        if self._consumer is not None:
            self._driver.close(self._session)
            self._consumer = None

    def _start(self, source: Topic) -> Bookmark | None:
        """Return where in the source to go on; None: with its records."""
        has_records = bool(source.definition.key_spec)
        if has_records and self._entry.document.retains:
            return None
        place = self._mark.place
        found = None if place is None else source.in_common(place)
        if found is not None and source.reaches(found):
            return found
        if has_records:
            return None
        if place is not None:
            text = "%s lacks messages: the journal of its source does not reach back to %s"
            logger.error(text, self._entry.record.name, place)
        is_trimmed = found is not None and source.place(found).epoch == source.epoch
        return source.bookmark(source.beginning if is_trimmed else source.head)

    async def _fill(self, source: Topic) -> bool:
        """Write what the source sends, until it has to begin again; return False at the end."""
        assert self._consumer is not None, "it has begun"
        held: list[Item] = []
        while not self._stopped:
            outputs = self._consumer.take(TAKEN_BYTES_AT_ONCE)
            if not outputs:
                await self._consumer.wait(WAIT_S_MAX)
            ready: list[Item] = []
            place: Bookmark | None = None
            for output in outputs:
                if isinstance(output, Goodbye):
                    return output.reason is not CloseReason.SHUTDOWN
                # It may have lost what it sent: what it has comes again.
                if _begins_again(output) or self._source_topic() is not source:
                    return True
                held += self._items(output)
                if (reached := _reached(output)) is not None:
                    ready, held, place = ready + held, [], reached
            if self._compares or sum(len(item.payload) for item in held) > HELD_BYTES_MAX:
                ready, held = ready + held, []
            if ready and not await self._write(ready, place, source):
                return True
        return False

    async def _write(self, items: Sequence[Item], place: Bookmark | None, source: Topic) -> bool:
        """Write items that take the topic to a place; return False if the source began again."""
        after = self._mark.then(place)
        async with self._entry.writing:
            if self._source_topic() is not source:
                return False
            fill = Fill(self._mark.text, after.text)
            # Read now: the lease may have changed hands.
            await self._writer.fill(self._entry, items, fill, self._leadership.fence)
        self._mark = after
        return True

    def _source_topic(self) -> Topic | None:
        """Return the source; another object once it has begun again, None once it is gone."""
        try:
            return self._driver.engine.topic(_source_of(self._entry).topic)
        except TopicUnknown:
            return None

    def _items(self, output: Output) -> list[Item]:
        match output:
            case GroupBegin():
                self._seen = set()
            case GroupEnd():
                return self._stale()
            case Rows(op="snapshot"):
                return self._news(output.batch.frames)
            case Rows():
                return [_item(frame) for frame in output.batch.frames]
        return []

    def _news(self, frames: Sequence[Frame]) -> list[Item]:
        """Return the records of the source that the topic lacks or has with other values.

        Those that are older than the topic's `expiration` have expired here, unless it is new.
        """
        topic = self._driver.engine.topic(self._entry.record.name)
        board = None if topic.sow is None else topic.sow.board
        if self._seen is not None:
            self._seen.update(frame.key for frame in frames)
        news = [frame for frame in frames if not _has(board, frame)]
        expiration_ns = topic.definition.expiration_ns
        if expiration_ns is not None and board is not None and topic.head:
            since_ms = self._driver.wall_ms() - expiration_ns // MILLISECOND
            news = [it for it in news if it.timestamp_ms > since_ms or _is_there(board, it)]
        return [_item(frame) for frame in news]

    def _stale(self) -> list[Item]:
        """Return the records of the topic that the source does not have."""
        sow, seen = self._driver.engine.topic(self._entry.record.name).sow, self._seen
        self._seen = None
        if sow is None or seen is None:
            return []
        live = sow.board.live()
        return [Removal(it.key, RemovalReason.DELETED) for it in live if it.key not in seen]


class DerivedTopics:
    """Keeps derived topics filled as their definitions say; changes one topic at a time."""

    def __init__(
        self,
        driver: Driver,
        writer: RowWriter,
        append_waiters: AppendWaiters,
        leadership: Leadership,
    ) -> None:
        self._driver = driver
        self._writer = writer
        self._append_waiters = append_waiters
        self._leadership = leadership
        self._running: dict[str, DerivedTopic] = {}
        self._numbers = itertools.count(1)

    @property
    def reasons(self) -> dict[str, str]:
        """Why topics are not filled, by name."""
        return {name: each.reason for name, each in self._running.items() if each.reason}

    def check(self, document: TopicDefinition) -> None:
        """Check that the source of a topic can be asked what the topic needs, if it has one.

        Raises:
            EngineError: it cannot.
        """
        source = document.gateway_source
        if source is not None:
            wanted(self._driver, source, document.key_spec)

    async def begin_at_head(self, entry: CatalogTopic) -> None:
        """Let a topic that has just got its source begin with the source's next message.

        One whose source has records begins with these.

        Raises:
            TopicUnknown, Refused: as `RowWriter.fill`.
        """
        source = entry.document.gateway_source
        if source is None or self._has_records(source):
            return
        before = Mark(await self._writer.filled(entry))
        # What other gateways have acknowledged comes before it, though it is not here yet.
        shared_head = await self._append_waiters.shared_head(source.topic, None)
        topic = self._driver.engine.topic(source.topic)
        place = topic.bookmark(max(topic.head, shared_head))
        fill = Fill(before.text, before.then(place).text)
        async with entry.writing:
            with contextlib.suppress(HeadMoved):  # the leader has begun already
                await self._writer.fill(entry, (), fill)

    def start(self, entry: CatalogTopic) -> None:
        """Start to fill a topic, if it has a source."""
        name = entry.record.name
        if entry.document.gateway_source is None or name in self._running:
            return
        self._running[name] = DerivedTopic(
            self._driver,
            self._writer,
            self._append_waiters,
            self._leadership,
            entry,
            f"filler-{next(self._numbers)}",
        )

    async def stop(self, name: str) -> None:
        """Stop filling a topic; return once all writing has ended."""
        derived = self._running.pop(name, None)
        if derived is not None:
            await derived.stop()

    async def aclose(self) -> None:
        """Stop filling every topic."""
        for name in list(self._running):
            await self.stop(name)

    async def begin_again(self, entry: CatalogTopic) -> None:
        """Fill a topic that has lost messages from its source again."""
        await self.stop(entry.record.name)
        self.start(entry)

    @asynccontextmanager
    async def refilled(self, known: CatalogTopic, document: TopicDefinition) -> AsyncIterator[None]:
        """Fill the topic by its new definition, from the moment that it holds."""
        name, old, new = known.record.name, known.document.gateway_source, document.gateway_source
        if old == new:
            yield
            return
        if new is not None and has_same_source(known.document, document):
            yield
            try:
                # The inner session goes on, so that no record is read or published twice.
                if name in self._running:
                    self._running[name].change(new, document.key_spec)
            except (EngineError, KeysError):  # it tells the reason, and tries again
                await self.begin_again(known)
            return
        # Another source begins with its own records, and nothing may be written in between.
        async with self.unfilled(known):
            yield
        self.start(known)

    def _has_records(self, source: TopicSource) -> bool:
        return bool(self._driver.engine.topic(source.topic).definition.key_spec)

    @asynccontextmanager
    async def unfilled(self, known: CatalogTopic) -> AsyncIterator[None]:
        """Stop filling a topic while it changes; if the change fails, start again."""
        await self.stop(known.record.name)
        try:
            yield
        except BaseException:  # a cancelled change too must not leave the topic without a filler
            self.start(known)
            raise


def wanted(
    driver: Driver, source: TopicSource, key_spec: KeySpec, start: Bookmark | None = None
) -> Subscription:
    """Return the subscription that fills a topic with this key.

    Without a start it begins with the source's records, if that has any.
    """
    definition = driver.engine.topic(source.topic).definition
    keeps_records = bool(definition.key_spec)
    # With records, a removal at the source must remove here too (`oof`); a source without them
    # still conflates by this topic's key.
    options = Options.of(
        conflation=source.interval_ns,
        conflation_key=None if keeps_records else key_spec,
        oof=keeps_records,
        projection=source.projection,
    )
    subscription = decide(
        source.topic,
        definition,
        options,
        command=None if keeps_records and start is None else Command.SUBSCRIBE,
        filter_text="" if source.filter is None else str(source.filter),
    )
    if start is None:
        return subscription
    return replace(subscription, replay=Replay(start, NotFound.EPOCH))


def _source_of(entry: CatalogTopic) -> TopicSource:
    source = entry.document.gateway_source
    assert source is not None, "it is filled until it is stopped"
    return source


def _begins_again(output: Output) -> bool:
    """Return True if a source has begun again, or the subscription has ended."""
    if isinstance(output, Resumed):
        return output.mode is not ResumeMode.REPLAY
    return isinstance(output, Unsubscribed)


def _reached(output: Output) -> Bookmark | None:
    """Return the place in the source up to which everything has come; None within a flush."""
    match output:
        case Rows(op="snapshot"):
            return None
        case Rows(epoch=epoch, batch=batch) if batch.low_water is not None:
            return Bookmark(epoch, batch.low_water)
        case GroupEnd():
            return Bookmark.parse(output.bookmark)
    return None


def _item(frame: Frame) -> Item:
    if isinstance(frame, Tombstone):
        return Removal(frame.key, frame.reason)
    return Message(frame.payload, frame.key, frame.exempt)


def _is_there(board: Board, frame: Frame) -> bool:
    return board.get(frame.key or THE_RECORD) is not None


def _has(board: Board | None, frame: Frame) -> bool:
    there = None if board is None else board.get(frame.key or THE_RECORD)
    return there is not None and there.payload == frame.payload
