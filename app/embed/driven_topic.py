"""One topic of an application: a separate engine, run by the event loop that uses the topic."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from tidegate.app.access.limits.lane_use import LaneUse
from tidegate.app.refusals import Refused
from tidegate.app.shielding import run_shielded
from tidegate.app.streams.connection import StreamTimes
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.event_writer import EventWriter
from tidegate.app.streams.notices import Heartbeat
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.subscribe_request import RequestedSubscription, SubscribeRequest
from tidegate.app.streams.subscriptions import (
    FIRST,
    GrantedSubscription,
    GrantedTopics,
    SessionSubscription,
    start_of,
)
from tidegate.conflation.boards.board import Board
from tidegate.conflation.definition import Definition
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import SessionUnknown
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.outputs import CloseReason, RecordsExpired
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark

EXPIRED_AT_ONCE: Final = 500
PUBLISHED_AT_ONCE: Final = 20
"""Calls of a publisher before it yields to the event loop: about a millisecond."""

FAREWELL_S: Final = 1.0
KEYS_WAITING_MAX: Final = 100_000  # of a subscription by a conflation key other than the topic's
LANES_MAX: Final = 20_000  # most of which a message does not reach
NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Bounds of one topic, by the names of a gateway's settings; times are in seconds.

    Attributes:
        sessions_max: streams and subscriptions at once; more are `limit-reached`.
        topic_lanes_max: different lanes that one message may reach; more are `limit-reached`.
        topic_keys_max: records; a message with a further key is `limit-reached`.
        journal_messages_max: messages that the journal has, for replays.
        journal_bytes_max: bytes of these.
        queue_messages_max: messages that wait for a reader of every message.
        queue_bytes_max: bytes of these.
        heartbeat_s: the longest silence of a stream.
        write_timeout_s: a reader that takes nothing for this long is cut.
    """

    sessions_max: int = 10_000
    topic_lanes_max: int = 500
    topic_keys_max: int = 1_000_000
    journal_messages_max: int = 10_000
    journal_bytes_max: int = 64 << 20
    queue_messages_max: int = 10_000
    queue_bytes_max: int = 8 << 20
    heartbeat_s: float = 15.0
    write_timeout_s: float = 10.0


class TopicReader:
    """A reader of a topic; a gateway would have a session with one subscription.

    Attributes:
        asked: the subscription, by its name.
        reader: takes its outputs from the engine.
        hello: the first event of a stream.
    """

    __slots__ = ("asked", "hello", "reader")

    def __init__(
        self, asked: Mapping[str, SessionSubscription], reader: Reader, hello: bytes
    ) -> None:
        self.asked = asked
        self.reader = reader
        self.hello = hello


class DrivenTopic:
    """A topic and its readers.

    It belongs to the event loop that first uses it. When that loop is closed, as in tests, the
    records stay, and the topic belongs to the next loop that uses it.

    Args:
        name: the name in its events.
        definition: the engine's definition of it.
        limits: bounds of readers and of what is kept.
    """

    def __init__(self, name: str, definition: Definition, limits: TopicLimits) -> None:
        self.name = name
        self.limits = limits
        self.times = StreamTimes(limits.heartbeat_s, limits.write_timeout_s, FAREWELL_S)
        self._engine = Engine(
            sessions_max=limits.sessions_max,
            subscriptions_max=1,
            keys_max=KEYS_WAITING_MAX,
            in_steps=True,
        )
        self._engine.define_topic(name, definition, secrets.token_hex(6))
        self._lanes = LaneUse(LANES_MAX, limits.topic_lanes_max)
        self._numbers = count(1)
        self._readers: dict[str, SessionSubscription] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Driver | None = None
        self._writing = asyncio.Lock()
        self._expiring: asyncio.Task[None] | None = None
        self._expired_through = 0
        self._published_at_once = 0

    @property
    def topic(self) -> Topic:
        """The engine's topic, to read."""
        return self._engine.topic(self.name)

    @property
    def driver(self) -> Driver:
        """The driver of the engine.

        Raises:
            RuntimeError: no event loop runs, or another one than the topic's.
        """
        loop = asyncio.get_running_loop()
        if self._driver is None or self._loop is not loop:
            self._driver = self._begin_on(loop)
        return self._driver

    def _begin_on(self, loop: asyncio.AbstractEventLoop) -> Driver:
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                f"the topic {self.name!r} belongs to another event loop; from other threads use "
                "asyncio.run_coroutine_threadsafe"
            )
        for session, asked in self._readers.items():  # their tasks ended with the closed loop
            asked.end()
            with contextlib.suppress(SessionUnknown):
                self._engine.close_session(session)
        self._readers.clear()
        self._loop, self._writing, self._expiring = loop, asyncio.Lock(), None
        limits = QueueLimits(self.limits.queue_messages_max, self.limits.queue_bytes_max)
        driver = Driver(self._engine, limits, lambda: int(loop.time() * NS_PER_S))
        driver.on_expired = self._note_expired
        driver.dispatch()
        self._remove_soon()  # records that expired under the closed loop
        return driver

    # Reading

    def open_reader(
        self, granted: RequestedSubscription, request: SubscribeRequest, resume: Bookmark | None
    ) -> TopicReader:
        """Open a reader; `granted`: what its request was granted.

        Raises:
            LimitReached: too many readers, or too many different lanes.
            BookmarkExpired: the journal does not reach back to where it should begin.
        """
        driver, subscription = self.driver, granted.subscription
        start = start_of(self.topic, subscription)
        self._lanes.check([(self.name, subscription.lane_id)])
        session = f"r{next(self._numbers)}"
        consumer = driver.open(session)
        own = GrantedSubscription(subscription, granted.form, self.topic.epoch, None)
        asked = SessionSubscription(
            FIRST, self.name, request, GrantedTopics(self._lanes, {self.name: own})
        )
        self._readers[session] = asked
        reader = Reader(
            driver,
            consumer,
            None,
            heartbeat_ms=int(self.times.heartbeat_s * 1_000),
            came_after=None,
            on_closed=lambda: self._forget(session),
        )
        try:
            reader.subscribe(FIRST, subscription, granted.form)
        except BaseException:
            reader.close()
            raise
        # If no backfill follows, hello has an id: a reader that leaves now can resume from there.
        is_bare = start is not None and resume is None
        hello = reader.hello(id_text=str(start) if is_bare else "")
        return TopicReader({FIRST: asked}, reader, hello)

    def open_writer(
        self, granted: RequestedSubscription, request: SubscribeRequest, resume: Bookmark | None
    ) -> EventWriter:
        """Open a reader whose outputs are written as events.

        Raises:
            LimitReached, BookmarkExpired: as `open_reader`.
        """
        opened = self.open_reader(granted, request, resume)
        heartbeat = Heartbeat(self.times.heartbeat_s, asyncio.get_running_loop().time())
        return EventWriter(opened.reader, opened.hello, opened, heartbeat)

    def _forget(self, session: str) -> None:
        asked = self._readers.pop(session, None)
        if asked is not None:
            asked.end()

    def close_readers(self) -> None:
        """Send every reader a goodbye: its stream ends, and it may reconnect."""
        if self._readers:
            self.driver.close_all(CloseReason.SHUTDOWN)

    # Writing

    async def publish(self, messages: Sequence[tuple[bytes, str]]) -> Bookmark:
        """Publish messages, each a payload and a record key; return the bookmark of the last.

        Raises:
            Refused: limit-reached; nothing was published.
        """

        def framed(first: int, now_ms: int) -> list[Frame]:
            self._check_room([record_key for _, record_key in messages])
            return [
                Frame(offset, payload, record_key, now_ms)
                for offset, (payload, record_key) in enumerate(messages, first)
            ]

        await self._write(framed)
        return self.topic.bookmark(self.topic.head)

    async def remove(self, record_keys: Sequence[str]) -> int:
        """Remove the records of these keys; return how many there were."""
        board = self._board()

        def framed(first: int, now_ms: int) -> list[Frame]:
            there = [it for it in dict.fromkeys(record_keys) if board.get(it)]
            return _tombstones(there, first, now_ms, RemovalReason.DELETED)

        return await self._write(framed)

    async def _write(self, framed: Callable[[int, int], list[Frame]]) -> int:
        """Publish the frames that `framed` makes of the next offset and the wall time, in order."""
        driver = self.driver
        async with self._writing:
            frames = framed(self.topic.head + 1, driver.wall_ms())
            work = driver.publish(self.name, frames)
            size_bytes = sum(len(frame.payload) for frame in frames)
            if driver.publishes_at_once(self.name, len(frames), size_bytes):
                await work
            else:  # all or none, also where the caller is cancelled meanwhile
                await run_shielded(work)
        self._published_at_once += 1
        if self._published_at_once >= PUBLISHED_AT_ONCE:
            self._published_at_once = 0
            await asyncio.sleep(0)
        return len(frames)

    def _check_room(self, record_keys: Sequence[str]) -> None:
        sow = self.topic.sow
        # As if every key were new: nearly always there is room, and no key has to be checked.
        if sow is None or len(sow.board) + len(record_keys) <= self.limits.topic_keys_max:
            return
        new = {it for it in record_keys if sow.board.get(it) is None}
        if new and len(sow.board) + len(new) > self.limits.topic_keys_max:
            most = self.limits.topic_keys_max
            raise Refused("limit-reached", f"A topic has at most {most} keys (topic_keys_max).")

    def _board(self) -> Board:
        if self.topic.sow is None:
            raise Refused("key-invalid", "The topic keeps no records, so none can be removed.")
        return self.topic.sow.board

    # Expiry

    def _note_expired(self, expired: RecordsExpired) -> None:
        self._expired_through = max(self._expired_through, expired.through)
        self._remove_soon()

    def _remove_soon(self) -> None:
        """Remove expired records in a task, as the engine reports them during a call."""
        if self._expired_through and self._expiring is None:
            self._expiring = asyncio.get_running_loop().create_task(self._remove_expired())

    async def _remove_expired(self) -> None:
        board = self._board()

        def framed(first: int, now_ms: int) -> list[Frame]:
            records = board.oldest_through(self._expired_through, EXPIRED_AT_ONCE)
            return _tombstones(
                [record.key for record in records], first, now_ms, RemovalReason.EXPIRED
            )

        try:
            # In batches: records that are published meanwhile are no longer the oldest.
            while board.oldest_through(self._expired_through, 1):
                await self._write(framed)
        finally:
            self._expiring = None


def _tombstones(
    record_keys: Sequence[str], first: int, now_ms: int, reason: RemovalReason
) -> list[Frame]:
    return [
        Tombstone(offset, b"", record_key, now_ms, reason=reason)
        for offset, record_key in enumerate(record_keys, first)
    ]
