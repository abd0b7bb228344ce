"""Derived topics: conflated topics and views, filled from their sources by inner sessions.

An inner session subscribes to the source like any other; its rows are published into the derived
topic.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from tidegate.app.definitions.fields import TopicSource
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Fill, Item, Message, Removal
from tidegate.app.streams.driver import Consumer, Driver
from tidegate.app.timers import Backoff
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.boards.board import THE_RECORD, Board
from tidegate.conflation.errors import EngineError, TopicUnknown
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import (
    BACK_PRESSURE,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Rows,
    Unsubscribed,
)
from tidegate.conflation.subscription import Command, Subscription
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.errors import KeysError
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND

NAME = "source"
TAKEN_BYTES_AT_ONCE = 1 << 20
WAIT_S_MAX = 3_600.0  # rows and a stop wake the task; the wait only needs some bound
RETRY_S = 1.0

logger = logging.getLogger("tidegate.filler")


Write = Callable[[CatalogTopic, Fill, int | None], Awaitable[None]]
"""Writes into a derived topic: `Writer.fill`."""

CatchUp = Callable[[str, str], Awaitable[None]]
"""Waits for all that is stored of a topic in an epoch: `AppendWaiters.catch_up`."""


class DerivedTopic:
    """Fills one topic from its source until it is stopped.

    It begins with the source's records, if that `has_records`: records that the topic has already
    are not published again, records that the source no longer has are removed. So it can begin
    again at any time.
    """

    def __init__(
        self,
        driver: Driver,
        write: Write,
        catch_up: CatchUp,
        leadership: Leadership,
        session: str,
    ) -> None:
        self._driver = driver
        self._write = write
        self._catch_up = catch_up
        self._leadership = leadership
        self._session = session
        self._consumer: Consumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._is_behind = False
        self._source = ""
        self._since = 0  # the source's head at the subscription
        self.has_records = False
        self._seen: set[str] | None = None

    def subscribe(self, source: TopicSource, key_spec: KeySpec) -> None:
        """Open the inner session; what the source has now is the beginning.

        Raises:
            EngineError: as many sessions as may be, or the source cannot be asked this.
        """
        subscription = wanted(self._driver, source, key_spec)
        self._source, self.has_records = source.topic, subscription.command.queries
        self._since = self._driver.engine.topic(source.topic).head
        self._consumer = self._driver.open(self._session)
        self._driver.subscribe(self._session, NAME, subscription)

    def start(self, entry: CatalogTopic) -> None:
        """Fill this topic from now on."""
        self._task = asyncio.create_task(self._run(entry), name=f"fill {entry.record.name}")

    def change(self, source: TopicSource, key_spec: KeySpec) -> None:
        """Change interval, filter or projection of the same source; queued rows are kept.

        Raises:
            EngineError: the source cannot be asked this; all is as it was.
        """
        subscription = wanted(self._driver, source, key_spec)
        self._driver.change(self._session, NAME, subscription)

    async def stop(self) -> None:
        """Unsubscribe from the source, and wait until all writing has ended."""
        self._stopped = True
        self._driver.close(self._session)
        if self._consumer is not None:
            # A closed session wakes nobody, and the task would wait for an hour.
            self._consumer.wake()
        if self._task is None:
            return
        if self._is_behind:
            self._task.cancel()  # nothing is written yet
            await asyncio.wait([self._task])
        else:
            await self._task

    async def _run(self, entry: CatalogTopic) -> None:
        if self.has_records and not await self._caught_up(entry):
            return
        assert self._consumer is not None, "it subscribes before it starts"
        while not self._stopped:
            source = self._source_topic()
            outputs = self._consumer.take(TAKEN_BYTES_AT_ONCE)
            items = [item for output in outputs for item in self._items(entry, output)]
            if items and not await self._written(entry, items, source):
                return
            if Unsubscribed(NAME, self._source, BACK_PRESSURE) in outputs:
                text = "%s lacks messages: more keys waited than subscription_keys_max"
                logger.error(text, entry.record.name)
                if not self._subscribe_again(entry):
                    return
            elif any(isinstance(output, Goodbye | Unsubscribed) for output in outputs):
                return
            if not outputs:
                await self._consumer.wait(WAIT_S_MAX)

    async def _caught_up(self, entry: CatalogTopic) -> bool:
        """Wait until this gateway has all of both topics; return False if it ends meanwhile.

        A topic that comes back at another gateway is read here from the start of its log. Compared
        with a part of it, records would be removed, or written again.
        """
        engine, backoff = self._driver.engine, Backoff(RETRY_S)
        self._is_behind = True
        while not self._stopped:
            try:
                for name in (self._source, entry.record.name):
                    await self._catch_up(name, engine.topic(name).epoch)
                has_moved = engine.topic(self._source).head != self._since
            except TopicUnknown:
                return False
            except Refused as refusal:
                text = "%s is not filled, tried again: %s"
                logger.log(backoff.level, text, entry.record.name, refusal)
                await backoff.pause()
            else:
                self._is_behind = False
                # What was subscribed to may have been a part of the source's records.
                return not has_moved or self._subscribe_again(entry)
        return False

    def _subscribe_again(self, entry: CatalogTopic) -> bool:
        """Begin again with the source's records; return False if it ends all the same."""
        if self._stopped:
            return False
        name, document = entry.record.name, entry.document
        self._driver.close(self._session)
        try:
            assert document.gateway_source is not None, "it is filled until it is stopped"
            self.subscribe(document.gateway_source, document.key_spec)
        except (EngineError, KeysError) as error:
            logger.error("%s is not filled: %s", name, error.detail)
            return False
        return True

    async def _written(
        self, entry: CatalogTopic, items: Sequence[Item], source: Topic | None
    ) -> bool:
        """Write, and retry while the store is out; return False once the topic has ended.

        Items of a source that has begun again meanwhile are dropped if its records follow: it may
        have lost them.
        """
        backoff, fill = Backoff(RETRY_S), Fill(items)
        while not self._stopped:
            try:
                async with entry.writing:
                    if self.has_records and self._source_topic() is not source:
                        return True
                    # Read at each attempt: the lease may have changed hands since the last one.
                    await self._write(entry, fill, self._leadership.fence)
            except TopicUnknown:
                return False
            except Exception as error:  # rows that were taken exist nowhere else: written again
                text, is_foreseen = "%s is not filled, tried again: %s", isinstance(error, Refused)
                logger.log(backoff.level, text, entry.record.name, error, exc_info=not is_foreseen)
                await backoff.pause()
            else:
                return True
        return False

    def _source_topic(self) -> Topic | None:
        """Return the source; another object once it has begun again, None once it is gone."""
        try:
            return self._driver.engine.topic(self._source)
        except TopicUnknown:
            return None

    def _items(self, entry: CatalogTopic, output: Output) -> list[Item]:
        match output:
            case GroupBegin() | GroupEnd() | Rows(op="snapshot") if not self.has_records:
                pass  # the source has begun again: what it has no more is not removed here
            case GroupBegin():
                self._seen = set()
            case GroupEnd():
                return self._stale(entry)
            case Rows(op="snapshot"):
                return self._news(entry, output.batch.frames)
            case Rows():
                return [_item(frame) for frame in output.batch.frames]
        return []

    def _news(self, entry: CatalogTopic, frames: Sequence[Frame]) -> list[Item]:
        """Return the records of the source that the topic lacks or has with other values.

        Those that are older than the topic's `expiration` have expired here, unless it is new.
        """
        board, topic = self._board(entry), self._driver.engine.topic(entry.record.name)
        if self._seen is not None:
            self._seen.update(frame.key for frame in frames)
        news = [frame for frame in frames if not _has(board, frame)]
        expiration_ns = topic.definition.expiration_ns
        if expiration_ns is not None and board is not None and topic.head:
            since_ms = self._driver.wall_ms() - expiration_ns // MILLISECOND
            news = [it for it in news if it.timestamp_ms > since_ms or _is_there(board, it)]
        return [_item(frame) for frame in news]

    def _stale(self, entry: CatalogTopic) -> list[Item]:
        """Return the records of the topic that the source does not have."""
        board, seen = self._board(entry), self._seen
        self._seen = None
        if board is None or seen is None:
            return []
        return [Removal(it.key, RemovalReason.DELETED) for it in board.live() if it.key not in seen]

    def _board(self, entry: CatalogTopic) -> Board | None:
        sow = self._driver.engine.topic(entry.record.name).sow
        return None if sow is None else sow.board


class DerivedTopics:
    """Keeps derived topics filled as their definitions say; changes one topic at a time.

    Where gateways share a store the leader fills them; the others only check requests. `reasons`:
    why topics that are served are not filled; each is tried again when a topic is added.
    """

    def __init__(
        self, driver: Driver, write: Write, catch_up: CatchUp, leadership: Leadership
    ) -> None:
        self.reasons: dict[str, str] = {}
        self._driver = driver
        self._write = write
        self._catch_up = catch_up
        self._leadership = leadership
        self._running: dict[str, DerivedTopic] = {}
        self._numbers = itertools.count(1)

    def prepare(self, name: str, document: TopicDefinition) -> None:
        """Subscribe to the source of a topic that need not exist yet, if it has one.

        Raises:
            EngineError: there are too many sessions, or the source cannot be asked this.
        """
        source = document.gateway_source
        if source is None:
            return
        if not self._leadership.is_held:
            # The request is refused here as it would be at the leader.
            wanted(self._driver, source, document.key_spec)
            return
        session = f"filler-{next(self._numbers)}"
        derived = DerivedTopic(self._driver, self._write, self._catch_up, self._leadership, session)
        derived.subscribe(source, document.key_spec)
        self._running[name] = derived

    def start(self, entry: CatalogTopic) -> None:
        """Start to fill a prepared topic."""
        derived = self._running.get(entry.record.name)
        if derived is not None:
            derived.start(entry)

    async def stop(self, name: str) -> None:
        """Stop filling a topic; return once all writing has ended."""
        self.reasons.pop(name, None)
        await self._halt(name)

    def fill(self, entry: CatalogTopic) -> None:
        """Start to fill an existing topic, or note what prevents it."""
        name, source = entry.record.name, entry.document.gateway_source
        if source is None or name in self._running or not self._leadership.is_held:
            self.reasons.pop(name, None)
            return
        try:
            self.prepare(name, entry.document)
        except TopicUnknown:
            self._note(name, f"its source {source.topic} is not served here")
        except (EngineError, KeysError) as error:
            self._note(name, error.detail)
        else:
            self.reasons.pop(name, None)
            self.start(entry)

    def begin(self, entries: Iterable[CatalogTopic]) -> None:
        """Start to fill these topics, as far as possible: this gateway is the leader now."""
        for entry in entries:
            self.fill(entry)

    def retry(self, served: Callable[[str], CatalogTopic | None]) -> None:
        """Fill what could not be filled so far: a topic was added."""
        # By name: a scan of ten thousand topics would slow down each new one.
        self.begin(entry for name in list(self.reasons) if (entry := served(name)) is not None)

    async def end(self) -> None:
        """Stop filling: another gateway is the leader now."""
        self.reasons.clear()
        await self.aclose()

    async def aclose(self) -> None:
        """Stop filling every topic."""
        for name in list(self._running):
            await self._halt(name)

    async def cut_off(self, entry: CatalogTopic) -> None:
        """Stop filling a topic whose source has become unusable, and note the reason."""
        await self._halt(entry.record.name)
        self.fill(entry)

    async def begin_again(self, entry: CatalogTopic) -> None:
        """Fill a topic that has lost messages from its source's records again, if it has any."""
        derived = self._running.get(entry.record.name)
        if derived is not None and derived.has_records:
            await self._halt(entry.record.name)
            self.fill(entry)

    @asynccontextmanager
    async def refilled(self, known: CatalogTopic, document: TopicDefinition) -> AsyncIterator[None]:
        """Fill the topic by its new definition, from the moment that it holds."""
        name, old, new = known.record.name, known.document.gateway_source, document.gateway_source
        is_running = name in self._running
        if old == new:
            yield
        elif is_running and old is not None and new is not None and old.topic == new.topic:
            wanted(self._driver, new, document.key_spec)  # what cannot be asked is refused here
            yield
            # The inner session goes on, so that no record is read or published twice.
            if name in self._running:
                self._running[name].change(new, document.key_spec)
        else:
            # It was not filled, or another source begins with its own records, and nothing may be
            # written in between.
            async with self.unfilled(known):
                self.prepare(name, document)
                yield
            self.start(known)

    @asynccontextmanager
    async def unfilled(self, known: CatalogTopic) -> AsyncIterator[None]:
        """Stop filling a topic while it changes; if the change fails, start again."""
        name = known.record.name
        await self.stop(name)
        try:
            yield
        except BaseException:  # a cancelled change too must not leave the topic without a filler
            await self.stop(name)
            self.fill(known)
            raise

    async def _halt(self, name: str) -> None:
        derived = self._running.pop(name, None)
        if derived is not None:
            await derived.stop()

    def _note(self, name: str, reason: str) -> None:
        if self.reasons.get(name) != reason:
            logger.error("%s is not filled: %s", name, reason)
        self.reasons[name] = reason


def wanted(driver: Driver, source: TopicSource, key_spec: KeySpec) -> Subscription:
    """Return the subscription that fills a topic with this key.

    A source without a key has no records to begin with: it fills from now on.
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
    return decide(
        source.topic,
        definition,
        options,
        command=None if keeps_records else Command.SUBSCRIBE,
        filter_text="" if source.filter is None else str(source.filter),
    )


def _item(frame: Frame) -> Item:
    if isinstance(frame, Tombstone):
        return Removal(frame.key, frame.reason)
    return Message(frame.payload, frame.key, frame.exempt)


def _is_there(board: Board, frame: Frame) -> bool:
    return board.get(frame.key or THE_RECORD) is not None


def _has(board: Board | None, frame: Frame) -> bool:
    there = None if board is None else board.get(frame.key or THE_RECORD)
    return there is not None and there.payload == frame.payload
