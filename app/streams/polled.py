"""Polled streams: what readers without a connection ask for, position by position.

A subscriber is told; a polling reader asks what has changed since a position, and asks again with
the next one. All who ask for the same rows share a `PolledStream`. It keeps a lane of the engine
busy, as a subscriber would, and lets changes go at that lane's flushes alone, so that a reader gets
each key at most once an interval. Whoever asks from the same position gets the same bytes.

An answer that leads from one position to the next stays right as long as the epoch lasts: a cache
may keep it, and whoever gets it late goes on from there.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Final

from tidegate.app.refusals import Refused, topic_unknown
from tidegate.app.streams.driver import Consumer, Driver
from tidegate.app.streams.polled_rows import (
    Form,
    JournalPages,
    Page,
    PageSource,
    Position,
    RecordPages,
)
from tidegate.conflation.definition import Kind
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.outputs import Goodbye, Unsubscribed
from tidegate.conflation.sessions.session import UNLIMITED
from tidegate.conflation.subscription import LaneId, Subscription
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark

KEPT_BYTES_MAX: Final = 8 << 20
"""Pages that a stream keeps until its next flush; others are made for each who asks."""
UNREAD_S: Final = 60.0
"""A stream that nobody has read for so long, and for three intervals, is closed."""
TAKEN_BYTES_AT_ONCE: Final = 1 << 20
NAME: Final = "polled"


class PolledStream:
    """One stream for all who ask for the same rows of a topic.

    Attributes:
        position: where its last flush has led.
        is_over: its topic has ended, or nobody reads it.
    """

    def __init__(
        self, driver: Driver, session: str, subscription: Subscription, form: Form, kind: Kind
    ) -> None:
        """Begin to read a topic.

        Raises:
            EngineError: there are as many sessions as may be.
        """
        self._driver = driver
        self._session = session
        self._subscription = subscription
        self._pages: dict[Position | None, Page] = {}
        self._kept_bytes = 0
        self._waiting: dict[Position, asyncio.Future[Page | None]] = {}
        self._released: list[Position] = []
        self._is_built = asyncio.Event()
        self.is_over = False
        self._read_at_s = asyncio.get_running_loop().time()
        self._source: PageSource = (
            RecordPages(subscription, form, kind)
            if self._topic.sow is not None
            else JournalPages(subscription, kind)
        )
        self._consumer: Consumer = driver.open(session, UNLIMITED, lasts=True)
        self._consumer.wakeup.on_woken = self._wake
        try:
            driver.subscribe(session, NAME, subscription)
        except BaseException:
            driver.close(session)
            raise
        self.position = self.tail
        self._look()

    # --- What readers ask

    async def page(self, since: Position | None) -> Page:
        """Return what follows a position, which may be nothing; None: from the beginning.

        Raises:
            Refused: topic-unknown; bookmark-expired for a position that is no longer kept.
        """
        self._read_at_s = asyncio.get_running_loop().time()
        await self._is_built.wait()
        return self._page(since)

    async def next_page(self, since: Position, seconds_max: float) -> Page | None:
        """Return what follows a position once there is something; None after so long, or at an end.

        Raises:
            Refused: as `page`.
        """
        page = await self.page(since)
        if page.rows:
            return page
        waiting = self._waiting.get(since)
        if waiting is None:
            waiting = self._waiting[since] = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((waiting,), timeout=seconds_max)
        self._read_at_s = asyncio.get_running_loop().time()
        return waiting.result() if done else None

    @property
    def positions(self) -> int:
        """The number of positions at which somebody waits."""
        return len(self._waiting)

    @property
    def is_unread(self) -> bool:
        """Nobody has read it for long, or waits."""
        idle_s = asyncio.get_running_loop().time() - self._read_at_s
        interval_s = self._subscription.lane_id.interval_ns / 1e9
        return idle_s > max(UNREAD_S, 3 * interval_s)

    @property
    def tail(self) -> Position:
        """The position of a reader who has everything, let go or not."""
        return Position(self._topic.epoch, self._topic.head)

    def close(self) -> None:
        """End the stream; whoever waits comes again, and is told why."""
        self.is_over = True
        self._is_built.set()
        for waiting in self._waiting.values():
            waiting.set_result(None)
        self._waiting.clear()
        self._pages.clear()
        self._driver.close(self._session)

    # --- Flushes

    def _wake(self) -> None:
        self._driver.streams.call_soon(self._flush)

    def _flush(self) -> None:
        """Take what the lane has let go; after that, readers have what has changed by now."""
        outputs = self._consumer.take(TAKEN_BYTES_AT_ONCE)
        if any(isinstance(output, Unsubscribed | Goodbye) for output in outputs):
            self.close()
            return
        if outputs:  # until there are no more: only then the session is announced again
            self._wake()
            return
        try:
            self.position = self.tail
        except TopicUnknown:
            self.close()
            return
        self._look()
        self._pages.clear()
        self._kept_bytes = 0
        self._released = list(self._waiting)
        self._release()

    def _release(self) -> None:
        """Answer those who wait at one position; the next one comes in turn with the streams."""
        if not self._released or self.is_over:
            return
        since = self._released.pop()
        waiting = self._waiting.get(since)
        if waiting is not None:
            try:
                page = self._made(since)
            except Refused as refusal:
                del self._waiting[since]
                waiting.set_exception(refusal)
                waiting.exception()  # whoever waited may have left
            else:
                if page.rows:
                    del self._waiting[since]
                    waiting.set_result(page)
        if self._released:
            self._driver.streams.call_soon(self._release, behind=True)

    def _look(self) -> None:
        """Let readers in once the board is there: it may be built in steps."""
        if self._topic.sow is None or self._subscription.lane_id.feed in self._topic.feeds:
            self._is_built.set()

    # --- Pages

    def _page(self, since: Position | None) -> Page:
        if self.is_over:
            raise topic_unknown(self._subscription.topic)
        since = self._here(since)
        if since is not None and self._is_in_step(since):
            return Page(since, since)
        page = self._pages.get(since)
        return self._made(since) if page is None else page

    def _made(self, since: Position | None) -> Page:
        page = self._source.page(self._topic, since)
        if self._kept_bytes + len(page.body) <= KEPT_BYTES_MAX:
            self._kept_bytes += len(page.body)
            self._pages[since] = page
        return page

    def _is_in_step(self, since: Position) -> bool:
        """Return True for a reader who has what the last flush let go, or newer."""
        if since.cut is not None or since.epoch != self.position.epoch:
            return False
        return self.position.offset <= since.offset <= self._topic.head

    def _here(self, since: Position | None) -> Position | None:
        """Return a position of an epoch that this one continues as one of this epoch."""
        if since is None or since.epoch == self._topic.epoch:
            return since
        placed = self._topic.place(Bookmark(since.epoch, since.offset))
        return replace(since, epoch=placed.epoch)

    @property
    def _topic(self) -> Topic:
        return self._driver.engine.topic(self._subscription.topic)


class PolledStreams:
    """The polled streams of a gateway, each from its first reader on until nobody reads it.

    Attributes:
        requests: how many have been made to any of them, by readers or by caches before them.
    """

    def __init__(self, driver: Driver) -> None:
        self.requests = 0
        self._driver = driver
        self._streams: dict[tuple[str, LaneId, Form], PolledStream] = {}
        self._numbers = itertools.count(1)

    def stream(self, subscription: Subscription, form: Form, kind: Kind) -> PolledStream:
        """Return the stream of these rows, begun if this is its first reader.

        Raises:
            EngineError: there are as many sessions as may be.
        """
        self.requests += 1
        identity = subscription.topic, subscription.lane_id, form
        found = self._streams.get(identity)
        if found is None or found.is_over:
            session = f"polled-{next(self._numbers)}"
            found = PolledStream(self._driver, session, subscription, form, kind)
            self._streams[identity] = found
            self._look_later(identity, found)
        return found

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def positions(self) -> int:
        """The number of positions at which readers wait, of all streams."""
        return sum(stream.positions for stream in self._streams.values())

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _look_later(self, identity: tuple[str, LaneId, Form], stream: PolledStream) -> None:
        asyncio.get_running_loop().call_later(UNREAD_S, self._look, identity, stream)

    def _look(self, identity: tuple[str, LaneId, Form], stream: PolledStream) -> None:
        if self._streams.get(identity) is not stream:
            return
        if stream.is_over or stream.is_unread:
            stream.close()
            del self._streams[identity]
        else:
            self._look_later(identity, stream)
