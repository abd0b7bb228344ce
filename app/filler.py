"""Fillers: what fills this gateway's conflated topics and views, each by an inner session.

The session subscribes to the source as anybody might, and what it takes is published into the
topic: a board fed by another board.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence

from app.consumer import Consumer
from app.driver import Driver
from app.duty import Duty
from app.entry import Entry
from app.stores.store import Item, Message, Removal
from app.topic_source import Source
from app.writer import Writer
from conflation.boards.board import Board
from conflation.boards.screen import THE_RECORD
from conflation.errors import TopicUnknown
from conflation.frame import Frame, Gone, Tombstone
from conflation.language.grant import decide
from conflation.language.options import Options
from conflation.outputs import Goodbye, GroupBegin, GroupEnd, Output, Rows, Unsubscribed
from conflation.subscription import Command, Subscription
from keys.spec import KeySpec

NAME = "source"
TAKEN_BYTES_AT_ONCE = 1 << 20
WAIT_S_MAX = 3_600.0
RETRY_S = 1.0

logger = logging.getLogger("tidegate.filler")


class Filler:
    """Fills one topic from its source until it is stopped.

    It begins with the source's records: what the topic has already is not published again, and
    what the source no longer has is removed. So it can begin anew at any time.
    """

    def __init__(self, driver: Driver, writer: Writer, duty: Duty, session: str) -> None:
        self._driver = driver
        self._writer = writer
        self._duty = duty
        self._session = session
        self._consumer: Consumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._seen: set[str] | None = None

    def subscribe(self, source: Source, key_spec: KeySpec) -> None:
        """Open the inner session; what the source has now is the beginning.

        Raises:
            EngineError: as many sessions as may be, or the source cannot be asked this.
        """
        subscription = wanted(self._driver, source, key_spec)
        self._consumer = self._driver.open(self._session)
        self._driver.subscribe(self._session, NAME, subscription)

    def start(self, entry: Entry) -> None:
        """Fill this topic from now on."""
        self._task = asyncio.create_task(self._run(entry), name=f"fill {entry.record.name}")

    def change(self, source: Source, key_spec: KeySpec) -> None:
        """Another interval, filter or projection of the same source; what is held is kept.

        Raises:
            EngineError: the source cannot be asked this; all is as it was.
        """
        subscription = wanted(self._driver, source, key_spec)
        self._driver.change(self._session, NAME, subscription)

    async def stop(self) -> None:
        """Leave the source, and wait until nothing is being written any more."""
        self._stopped = True
        self._driver.close(self._session)
        if self._consumer is not None:
            self._consumer.wake()
        if self._task is not None:
            await self._task

    async def _run(self, entry: Entry) -> None:
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

    async def _written(self, entry: Entry, items: Sequence[Item]) -> bool:
        """Write, again and again while the store is out; False once there is no need to."""
        while not self._stopped:
            try:
                async with entry.writing:
                    await self._writer.write(entry, items, fence=self._duty.fence)
            except TopicUnknown:
                return False
            except Exception:
                logger.exception("%s is not filled; it is tried again", entry.record.name)
                await asyncio.sleep(RETRY_S)
            else:
                return True
        return False

    def _items(self, entry: Entry, output: Output) -> list[Item]:
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

    def _news(self, entry: Entry, frames: Sequence[Frame]) -> list[Item]:
        """Records of the source that the topic does not have yet, or has otherwise."""
        board = self._board(entry)
        if self._seen is not None:
            self._seen.update(frame.key for frame in frames)
        return [_item(frame) for frame in frames if not _has(board, frame)]

    def _stale(self, entry: Entry) -> list[Item]:
        """Records of the topic that the source does not have."""
        board, seen = self._board(entry), self._seen
        self._seen = None
        if board is None or seen is None:
            return []
        return [Removal(it.key, Gone.DELETED) for it in board.live() if it.key not in seen]

    def _board(self, entry: Entry) -> Board | None:
        sow = self._driver.engine.topic(entry.record.name).sow
        return None if sow is None else sow.board


class Fillers:
    """The fillers there are, by the name of the topic that they fill.

    Where gateways share a store it is the duty of one of them; the others only check what is asked.
    """

    def __init__(self, driver: Driver, writer: Writer, duty: Duty) -> None:
        self._driver = driver
        self._writer = writer
        self._duty = duty
        self._fillers: dict[str, Filler] = {}
        self._numbers = itertools.count(1)

    def prepare(self, name: str, source: Source, key_spec: KeySpec) -> None:
        """Subscribe for a topic that may not be there yet.

        Raises:
            EngineError: there are too many sessions, or the source cannot be asked this.
        """
        if not self._duty.is_held:
            wanted(self._driver, source, key_spec)
            return
        session = f"filler-{next(self._numbers)}"
        filler = Filler(self._driver, self._writer, self._duty, session)
        filler.subscribe(source, key_spec)
        self._fillers[name] = filler

    def start(self, entry: Entry) -> None:
        """Begin to fill a topic that was prepared, if it was."""
        filler = self._fillers.get(entry.record.name)
        if filler is not None:
            filler.start(entry)

    def change(self, name: str, source: Source, key_spec: KeySpec) -> None:
        """Another interval, filter or projection of the same source."""
        if name in self._fillers:
            self._fillers[name].change(source, key_spec)

    async def stop(self, name: str) -> None:
        """Fill this topic no more, if it was filled; returns once nothing is being written."""
        filler = self._fillers.pop(name, None)
        if filler is not None:
            await filler.stop()

    async def aclose(self) -> None:
        """Stop them all."""
        for name in list(self._fillers):
            await self.stop(name)


def wanted(driver: Driver, source: Source, key_spec: KeySpec) -> Subscription:
    """What is asked of a source to fill a topic with this key.

    From a source without a key there is nothing to begin with: what it publishes from now on.
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
