"""Derived topics: conflated topics and views, filled from their sources by inner sessions.

An inner session subscribes to the source like any other; its rows are published into the derived
topic. Each write is stored with the place in the source up to which the topic is filled then, so
whoever fills it next goes on there.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
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
from tidegate.conflation.frame import Batch, Frame, RemovalReason, Tombstone
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
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND

NAME = "source"
TAKEN_BYTES_AT_ONCE = 1 << 20
TAKEN_ROWS_AT_ONCE = 1_000
WRITTEN_ROWS_MAX = 100_000
WRITTEN_BYTES_MAX = 16 << 20
"""The most that is kept of a flush until its end tells the place that it reaches."""
BEGIN_AT_ONCE = 4
"""The topics that read what the store has at a time: there may be thousands, and one store."""
IDLE_S = 30.0
"""How often the place is stored where a filter lets no row through."""
RETRY_S = 1.0

logger = logging.getLogger("tidegate.filler")


class RowWriter(Protocol):
    """The part of `Writer` that fills topics."""

    async def write(
        self,
        entry: CatalogTopic,
        items: Sequence[Item],
        *,
        fence: int | None = None,
        fill: Fill | None = None,
    ) -> object:
        """Store and deliver items. The caller holds `entry.writing`."""

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


async def _no_archive(topic: str) -> None:
    """Do nothing: there is no archive to look into."""


@dataclass(slots=True)
class Beginnings:
    """What the topics that begin share: their turns, and the archive of their sources."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BEGIN_AT_ONCE))
    look_back: Callable[[str], Awaitable[None]] = _no_archive


@dataclass(slots=True)
class Flush:
    """Rows of a source on their way into a derived topic.

    Attributes:
        ready: rows to write, which take the topic to `place`; None for where it is.
        held: rows of a flush of which the end is still to come.
    """

    ready: list[Item] = field(default_factory=list)
    place: Bookmark | None = None
    held: list[Item] = field(default_factory=list)
    held_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """True if more is held than one write should have."""
        return len(self.held) > WRITTEN_ROWS_MAX or self.held_bytes > WRITTEN_BYTES_MAX

    def add(self, items: Sequence[Item]) -> None:
        """Add the next rows."""
        self.held += items
        self.held_bytes += sum(len(item.payload) for item in items)

    def end(self, place: Bookmark | None) -> None:
        """Let all rows be written; None if the place that they reach is not known."""
        self.ready += self.held
        self.held, self.held_bytes = [], 0
        self.place = place or self.place


class DerivedTopic:
    """Fills one topic from its source while this gateway is the leader, until it is stopped.

    A topic that keeps the records of its source begins with a comparison: records that it has
    already are not published again, records that the source no longer has are removed. Any other
    goes on where it is in the source. So it can begin again at any time, and does whenever a write
    fails: what it has taken and not written comes again.

    Attributes:
        reason: why it is not filled now; "" while it is, and at a gateway that does not lead.
    """

    def __init__(
        self,
        driver: Driver,
        writer: RowWriter,
        append_waiters: AppendWaiters,
        leadership: Leadership,
        entry: CatalogTopic,
        session: str,
        beginnings: Beginnings,
    ) -> None:
        self.reason = ""
        self._driver = driver
        self._writer = writer
        self._append_waiters = append_waiters
        self._leadership = leadership
        self._entry = entry
        self._session = session
        self._beginnings = beginnings
        self._consumer: Consumer | None = None
        self._mark = Mark()
        self._is_new = False
        self._goes_by_place = False
        self._is_subscribed = False
        self._seen: set[str] | None = None
        self._stopped = False
        task = asyncio.create_task(self._run(), name=f"fill {entry.record.name}")
        self._task: asyncio.Task[None] | None = task

    def change(self, source: TopicSource) -> None:
        """Change interval, filter or projection of the same source; queued rows are kept.

        Raises:
            EngineError: the source cannot be asked this; all is as it was.
        """
        if self._is_subscribed:  # otherwise it begins with these
            subscription = wanted(self._driver, source, self._entry.document)
            self._driver.change(self._session, NAME, subscription)

    async def stop(self) -> None:
        """Stop filling; a write that has begun ends first."""
        self._stopped = True
        # A canceled task keeps the frames in which it was; with them it would be in a cycle.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        backoff = Backoff(RETRY_S)
        while not self._stopped:
            if not self._leadership.is_held:
                self.reason = ""
            try:
                await self._leadership.begins()
                async with self._beginnings.turns:
                    source = await self._begin()
                self.reason = ""
                backoff.succeeded()
                begun = self._mark
                if not await self._fill(source):
                    return
                if self._mark is begun:
                    await asyncio.sleep(RETRY_S)
            except HeadMoved:  # another gateway was the leader, or the topic has lost something
                await asyncio.sleep(RETRY_S)
            except Exception as error:
                self._note(error, backoff.level)
                await backoff.pause()
            finally:
                self._end()

    def _note(self, error: Exception, level: int) -> None:
        """Log why the topic is not filled."""
        is_foreseen = isinstance(error, EngineError | KeysError | Refused)
        if isinstance(error, TopicUnknown) and self._source_topic() is None:
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
        wanted(self._driver, _source_of(entry), entry.document)  # before anything is written
        self._consumer = self._driver.open(self._session)
        self._mark = Mark(await self._writer.filled(entry))
        # A write without rows: no earlier write can follow it, and all before it has come here.
        await self._write((), self._mark.place)
        self._is_new = not engine.topic(entry.record.name).head
        source = _source_of(entry).topic
        await self._append_waiters.catch_up(source, engine.topic(source).epoch)
        await self._beginnings.look_back(source)
        topic = engine.topic(source)
        start = self._start(topic)
        self._goes_by_place, self._seen = start is not None, None
        if start is not None and start != self._mark.place:
            await self._write((), start)
            if engine.topic(source) is not topic:
                raise HeadMoved
        subscription = wanted(self._driver, _source_of(entry), entry.document, start)
        self._driver.subscribe(self._session, NAME, subscription)
        self._is_subscribed = True
        return topic

    def _end(self) -> None:
        self._is_subscribed = False
        if self._consumer is not None:
            self._driver.close(self._session)
            self._consumer = None

    def _start(self, source: Topic) -> Bookmark | None:
        """Return where in the source to go on; None: with its records."""
        has_records = bool(source.definition.key_spec)
        is_view = _source_of(self._entry).projection is not None
        if has_records and (is_view or self._entry.document.retains):
            return None
        place = self._mark.place
        found = None if place is None else source.in_common(place)
        if found is not None and source.reaches(found):
            return found
        if has_records:
            return None
        if place is None and not self._is_new:  # it was filled by a version without places
            return source.bookmark(source.head)
        if place is not None:
            text = "%s lacks messages: the journal of its source does not reach back to %s"
            logger.error(text, self._entry.record.name, place)
        is_ahead = found is not None and found.epoch == source.epoch and found.offset > source.head
        return source.bookmark(source.head if is_ahead else source.beginning)

    async def _fill(self, source: Topic) -> bool:
        """Write what the source sends, until it has to begin again; return False at the end."""
        assert self._consumer is not None, "it has begun"
        flush = Flush()
        while not self._stopped:
            outputs = self._consumer.take(TAKEN_BYTES_AT_ONCE)
            for output in outputs:
                if isinstance(output, Goodbye):
                    return output.reason is not CloseReason.SHUTDOWN
                # It may have lost what it sent: what it has comes again.
                if _begins_again(output) or self._source_topic() is not source:
                    return True
                flush.add(self._items(output))
                if (reached := _reached(output)) not in (None, self._mark.place):
                    flush.end(reached)
            if flush.is_full or not self._goes_by_place:
                flush.end(None)
            is_known = flush.place is not None
            if flush.ready and not await self._written(flush, source):
                return True
            if is_known and not self._entry.document.retains:
                self._goes_by_place = True  # the source's records have come
            if not outputs and not await self._rest(flush, source):
                return True
            await asyncio.sleep(0)
        return False

    async def _rest(self, flush: Flush, source: Topic) -> bool:
        """Wait for the next rows; return False if the source began again.

        The last rows of a flush may have come ahead, and a filter may let none through while the
        journal of the source goes on: then the session knows the place.
        """
        assert self._consumer is not None, "it has begun"
        is_idle = not flush.held and not await self._consumer.wait(IDLE_S)
        if self._goes_by_place and (flush.held or is_idle):
            for _, place in self._consumer.caught_up():
                if flush.held or place != self._mark.place:
                    flush.end(place)
                    return await self._written(flush, source)
        if flush.held:
            await self._consumer.wait(IDLE_S)
        return True

    async def _written(self, flush: Flush, source: Topic) -> bool:
        """Write what is ready; return False if the source began again."""
        async with self._entry.writing:
            if self._source_topic() is not source:
                return False
            await self._write_here(flush.ready, flush.place)
        flush.ready, flush.place = [], None
        return True

    async def _write(self, items: Sequence[Item], place: Bookmark | None) -> None:
        async with self._entry.writing:
            await self._write_here(items, place)

    async def _write_here(self, items: Sequence[Item], place: Bookmark | None) -> None:
        after = self._mark.then(place)
        fill = Fill(self._mark.text, after.text)
        # Read now: the lease may have changed hands.
        await self._writer.write(self._entry, items, fence=self._leadership.fence, fill=fill)
        self._mark = after

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
        if expiration_ns is not None and board is not None and not self._is_new:
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
        self._beginnings = Beginnings()
        self._ending: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    def look_back_by(self, look_back: Callable[[str], Awaitable[None]]) -> None:
        """Call this before a place in a source is looked for: an archive may have it."""
        self._beginnings.look_back = look_back

    @property
    def reasons(self) -> dict[str, str]:
        """Why topics are not filled, by name."""
        return {name: each.reason for name, each in self._running.items() if each.reason}

    async def first_mark(
        self, document: TopicDefinition, before: TopicDefinition | None = None
    ) -> str:
        """Return the mark from which a topic is filled that gets its source with this definition.

        A source without records begins with its next message; "" for any other, and for a topic
        that has its source already.

        Raises:
            EngineError: the source cannot be asked what the topic needs.
            Refused: bus-unavailable.
        """
        source = document.gateway_source
        if source is None or (before is not None and before.gateway_source == source):
            return ""
        wanted(self._driver, source, document)
        if before is not None and has_same_source(before, document):
            return ""
        if self._driver.engine.topic(source.topic).definition.key_spec:
            return ""
        # What other gateways have acknowledged comes before it, though it is not here yet.
        shared_head = await self._append_waiters.shared_head(source.topic, None)
        topic = self._driver.engine.topic(source.topic)
        return Mark().then(topic.bookmark(max(topic.head, shared_head))).text

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
            self._beginnings,
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
        if self._ending:
            await asyncio.wait(self._ending)

    def begin_again(self, entry: CatalogTopic) -> None:
        """Fill a topic that has lost messages from its source again.

        A write that has begun is not waited for: it may wait for the caller, and has no effect
        behind the write with which the topic begins.
        """
        derived = self._running.pop(entry.record.name, None)
        if derived is not None:
            ending = asyncio.create_task(derived.stop(), name=f"end {entry.record.name}")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
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
                    self._running[name].change(new)
            except (EngineError, KeysError):  # it tells the reason, and tries again
                self.begin_again(known)
            return
        # Another source begins with its own records, and nothing may be written in between.
        async with self.unfilled(known):
            yield
        self.start(known)

    @asynccontextmanager
    async def unfilled(self, known: CatalogTopic) -> AsyncIterator[None]:
        """Stop filling a topic while it changes; if the change fails, start again."""
        try:
            await self.stop(known.record.name)
            yield
        except BaseException:  # a cancelled change too must not leave the topic without a filler
            self.start(known)
            raise


def wanted(
    driver: Driver, source: TopicSource, document: TopicDefinition, start: Bookmark | None = None
) -> Subscription:
    """Return the subscription that fills a topic.

    Without a start it begins with the source's records, if that has any.

    Raises:
        EngineError: the source cannot be asked this.
    """
    definition = driver.engine.topic(source.topic).definition
    has_records = bool(definition.key_spec)
    # A removal at the source must remove here, too (`oof`), if this topic keeps records; a source
    # without them still conflates by this topic's key.
    options = Options.of(
        conflation=source.interval_ns,
        conflation_key=None if has_records else document.key_spec,
        oof=has_records and document.retains,
        projection=source.projection,
        batch_size=TAKEN_ROWS_AT_ONCE,
    )
    subscription = decide(
        source.topic,
        definition,
        options,
        command=None if has_records and start is None else Command.SUBSCRIBE,
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
        return output.mode is not ResumeMode.REPLAY or output.not_found is not None
    return isinstance(output, Unsubscribed)


def _reached(output: Output) -> Bookmark | None:
    """Return the place in the source up to which everything has come; None within a flush."""
    match output:
        case Rows(op="snapshot") | Rows(batch=Batch(has_more=True)):
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
