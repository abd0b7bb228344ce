"""Derived topics: fills conflated topics and views from their sources, by inner sessions.

An inner session subscribes to the source like any other; its rows are published into the derived
topic.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from tidegate.app.definitions.source import TopicSource
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.delivery.driver import Consumer, Driver
from tidegate.app.stores.store import Item, Message, Removal
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.registry import CatalogTopic
from tidegate.app.topics.writer import Writer
from tidegate.conflation.boards.board import Board
from tidegate.conflation.errors import EngineError, TopicUnknown
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.operators.filter import THE_RECORD
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.parse import Options
from tidegate.conflation.outputs import Goodbye, GroupBegin, GroupEnd, Output, Rows, Unsubscribed
from tidegate.conflation.subscription import Command, Subscription
from tidegate.keys.errors import KeysError
from tidegate.keys.spec import KeySpec

NAME = "source"
TAKEN_BYTES_AT_ONCE = 1 << 20
WAIT_S_MAX = 3_600.0  # rows and a stop wake the task; the wait only needs some bound
RETRY_S = 1.0

logger = logging.getLogger("tidegate.filler")


class DerivedTopic:
    """Fills one topic from its source until it is stopped.

    It begins with the source's records: records that the topic has already are not published again,
    records that the source no longer has are removed. So it can begin again at any time.
    """

    def __init__(
        self, driver: Driver, writer: Writer, leadership: Leadership, session: str
    ) -> None:
        self._driver = driver
        self._writer = writer
        self._duty = leadership
        self._session = session
        self._consumer: Consumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._seen: set[str] | None = None

    def subscribe(self, source: TopicSource, key_spec: KeySpec) -> None:
        """Open the inner session; what the source has now is the beginning.

        Raises:
            EngineError: as many sessions as may be, or the source cannot be asked this.
        """
        subscription = wanted(self._driver, source, key_spec)
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
            self._consumer.wake()
        if self._task is not None:
            await self._task

    async def _run(self, entry: CatalogTopic) -> None:
        assert self._consumer is not None, "it subscribes before it starts"
        while not self._stopped:
            outputs = self._consumer.take(TAKEN_BYTES_AT_ONCE)
            items = [item for output in outputs for item in self._items(entry, output)]
            if items and not await self._written(entry, items):
                return
            if any(isinstance(output, Goodbye | Unsubscribed) for output in outputs):
                return
            if not outputs:
                await self._consumer.wait(WAIT_S_MAX)

    async def _written(self, entry: CatalogTopic, items: Sequence[Item]) -> bool:
        """Write, and retry while the store is out; return False once the topic has ended."""
        while not self._stopped:
            try:
                async with entry.writing:
                    await self._writer.write(entry, items, fence=self._duty.fence)
            except TopicUnknown:
                return False
            except Exception:  # rows that were taken exist nowhere else, so writing is retried
                logger.exception("%s is not filled; it is tried again", entry.record.name)
                await asyncio.sleep(RETRY_S)
            else:
                return True
        return False

    def _items(self, entry: CatalogTopic, output: Output) -> list[Item]:
        match output:
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
        """Return the records of the source that the topic lacks or has with other values."""
        board = self._board(entry)
        if self._seen is not None:
            self._seen.update(frame.key for frame in frames)
        return [_item(frame) for frame in frames if not _has(board, frame)]

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
    """The derived topics that are being filled, by name.

    Where gateways share a store the leader fills them; the others only check requests.
    """

    def __init__(self, driver: Driver, writer: Writer, leadership: Leadership) -> None:
        self._driver = driver
        self._writer = writer
        self._duty = leadership
        self._fillers: dict[str, DerivedTopic] = {}
        self._numbers = itertools.count(1)

    @property
    def fills(self) -> bool:
        """True while this gateway is the leader."""
        return self._duty.is_held

    def has(self, name: str) -> bool:
        """Return True if this gateway fills the topic."""
        return name in self._fillers

    def prepare(self, name: str, source: TopicSource, key_spec: KeySpec) -> None:
        """Subscribe for a topic that may not be there yet.

        Raises:
            EngineError: there are too many sessions, or the source cannot be asked this.
        """
        if not self._duty.is_held:
            wanted(self._driver, source, key_spec)
            return
        session = f"filler-{next(self._numbers)}"
        filler = DerivedTopic(self._driver, self._writer, self._duty, session)
        filler.subscribe(source, key_spec)
        self._fillers[name] = filler

    def start(self, entry: CatalogTopic) -> None:
        """Start to fill a prepared topic."""
        filler = self._fillers.get(entry.record.name)
        if filler is not None:
            filler.start(entry)

    def change(self, name: str, source: TopicSource, key_spec: KeySpec) -> None:
        """Change interval, filter or projection of the same source."""
        if name in self._fillers:
            self._fillers[name].change(source, key_spec)

    async def stop(self, name: str) -> None:
        """Stop filling a topic; return once all writing has ended."""
        filler = self._fillers.pop(name, None)
        if filler is not None:
            await filler.stop()

    async def aclose(self) -> None:
        """Stop them all."""
        for name in list(self._fillers):
            await self.stop(name)


def wanted(driver: Driver, source: TopicSource, key_spec: KeySpec) -> Subscription:
    """Return the subscription that fills a topic with this key.

    A source without a key has no records to begin with: it fills from now on.
    """
    definition = driver.engine.topic(source.topic).definition
    keeps_records = bool(definition.key_spec)
    options = Options(
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


def _has(board: Board | None, frame: Frame) -> bool:
    there = None if board is None else board.get(frame.key or THE_RECORD)
    return there is not None and there.payload == frame.payload


class SourceChange:
    """Has the fillers do what definitions say; one change at a time, of one topic.

    `reasons`: why topics that are served are not filled; each is tried again when a topic comes.
    """

    def __init__(self, driver: Driver, derived_topics: DerivedTopics) -> None:
        self.reasons: dict[str, str] = {}
        self._driver = driver
        self._fillers = derived_topics

    def prepare(self, name: str, document: TopicDefinition) -> None:
        """Subscribe to the source of a topic that need not exist yet, if it has one.

        Raises:
            EngineError: there are too many sessions, or the source cannot be asked this.
        """
        source = document.gateway_source
        if source is not None:
            self._fillers.prepare(name, source, document.key_spec)

    def start(self, entry: CatalogTopic) -> None:
        """Begin to fill a topic that was prepared."""
        self._fillers.start(entry)

    async def stop(self, name: str) -> None:
        """Fill a topic no more."""
        self.reasons.pop(name, None)
        await self._fillers.stop(name)

    def fill(self, entry: CatalogTopic) -> None:
        """Start to fill an existing topic, or note what prevents it."""
        name, source = entry.record.name, entry.document.gateway_source
        if source is None or self._fillers.has(name) or not self._fillers.fills:
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
            self._fillers.start(entry)

    def begin(self, entries: Iterable[CatalogTopic]) -> None:
        """Start to fill these topics, as far as possible: this gateway is the leader now."""
        for entry in entries:
            self.fill(entry)

    def retry(self, entries: Iterable[CatalogTopic]) -> None:
        """Fill what could not be filled so far: a topic has come."""
        if self.reasons:
            self.begin(entry for entry in entries if entry.record.name in self.reasons)

    async def end(self) -> None:
        """Stop filling: another gateway is the leader now."""
        self.reasons.clear()
        await self._fillers.aclose()

    async def cut_off(self, entry: CatalogTopic) -> None:
        """Stop filling a topic whose source has become unusable."""
        await self._fillers.stop(entry.record.name)
        self.fill(entry)

    def _note(self, name: str, reason: str) -> None:
        if self.reasons.get(name) != reason:
            logger.error("%s is not filled: %s", name, reason)
        self.reasons[name] = reason

    @asynccontextmanager
    async def refilled(self, known: CatalogTopic, document: TopicDefinition) -> AsyncIterator[None]:
        """Have the topic filled as its new definition says from when that holds, no sooner."""
        name, old, new = known.record.name, known.document.gateway_source, document.gateway_source
        if old == new:
            yield
        elif name in self.reasons:
            await self.stop(name)
            self.prepare(name, document)
            yield
            self._fillers.start(known)
        elif old is not None and new is not None and old.topic == new.topic:
            wanted(self._driver, new, document.key_spec)  # what cannot be asked is refused here
            yield
            self._fillers.change(name, new, document.key_spec)
        else:
            async with self.unfilled(known):
                self.prepare(name, document)
                yield
            self._fillers.start(known)

    @asynccontextmanager
    async def unfilled(self, known: CatalogTopic) -> AsyncIterator[None]:
        """Stop filling a topic while it changes; if the change fails, start again."""
        name = known.record.name
        await self.stop(name)
        try:
            yield
        except BaseException:
            await self.stop(name)
            self.fill(known)
            raise
