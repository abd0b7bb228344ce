"""Polled streams: rows for readers that poll, position by position.

A polling reader requests what has changed since a position, and then again with the next position.
All readers of the same rows share a `PolledStream`. It subscribes to a lane of the engine, and
shows changes only at that lane's flushes, so that a reader gets each key at most once an interval.
Requests with the same position get the same bytes.

An answer that leads from one position to the next is valid as long as the epoch: a cache may keep
it, and a reader that gets it late continues from there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tidegate.app.access.grants import Grants, Subject
from tidegate.app.access.limits.quota import NOBODY, Usage
from tidegate.app.refusals import Refused, topic_unknown
from tidegate.app.stores.store import TopicRecord
from tidegate.app.streams.decisions import SessionContext
from tidegate.app.streams.driver import Consumer, Driver
from tidegate.app.streams.poll_request import PollRequest, PollTexts, granted_poll
from tidegate.app.streams.polled_pages import (
    JournalPages,
    Page,
    PageSource,
    Position,
    RecordPages,
    RowForm,
)
from tidegate.conflation.definition import Definition, Kind
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.outputs import Goodbye, Unsubscribed
from tidegate.conflation.sessions.session import UNLIMITED
from tidegate.conflation.subscription import LaneId, Subscription
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark

KEPT_BYTES_MAX: Final = 8 << 20
"""Pages that a stream caches until its next flush; others are made for each request."""
PAGE_BYTES: Final = 1 << 10
"""What a page counts without its body, as readers choose the positions, and may use all."""
UNREAD_S: Final = 60.0
UNREAD_S_MAX: Final = 3_600.0
"""A stream that nobody has read for a minute and for three intervals, or for an hour, is closed."""
GRANTED_MAX: Final = 1_000
"""Decisions that are cached; clients choose the texts, so their number is bounded."""
RELEASED_AT_ONCE: Final = 2  # positions, a page each
TAKEN_BYTES_AT_ONCE: Final = 1 << 20
SKIPPED_EVERY_S: Final = 1.0
"""How often requests that wait at a journal are moved past messages that do not match."""
POSITIONS_MAX: Final = 1_000
"""Recently read positions that a stream keeps; readers choose them, so the number is bounded."""
POSITIONS_S: Final = 1.0
"""A position counts as read for an interval after a request, and at least so long."""
NAME: Final = "polled"


Identity = tuple[str, LaneId, RowForm]
"""The identity of a stream: requests with equal ones share it."""
Answering = Callable[[Page | Refused], None]
"""Called with the page after a position; it has no row after a timeout or the stream's end."""


class Waiter:
    """A request that waits for a page after its position."""

    __slots__ = ("answer", "since", "timer")

    def __init__(self, since: Position, answer: Answering) -> None:
        self.since = since
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class PollCounts:
    """Requests of readers or of caches before them, and answers with rows."""

    requests: int = 0
    answers: int = 0

    def __add__(self, other: PollCounts) -> PollCounts:
        return PollCounts(self.requests + other.requests, self.answers + other.answers)


class PolledStream:
    """One stream for all readers that poll the same rows of a topic.

    Attributes:
        subscription: the rows that are read.
        usage: of the subject whose request opened it, which is charged a subscription and a lane.
        form: how rows are written.
        position: the end of its last flush.
        is_over: its topic has ended, or it was closed.
        opened_ms: when its first request came, as Unix time.
        flushed_ms: when its last flush was, or when its first request came.
        read_at_s: when it was read last, by the loop's clock.
        requests, answers: as in `PollCounts`.
        sent_bytes: the bytes of the bodies of these answers.
    """

    def __init__(
        self,
        driver: Driver,
        session: str,
        usage: Usage,
        subscription: Subscription,
        form: RowForm,
        kind: Kind,
    ) -> None:
        """Begin to read a topic.

        Raises:
            EngineError: there are too many sessions.
        """
        self._driver = driver
        self._session = session
        self.usage = usage
        self.subscription = subscription
        self.form = form
        self._pages: dict[Position | None, Page] = {}
        self._kept_bytes = 0
        self._waiting: dict[Position, dict[Waiter, None]] = {}
        self._released: deque[Position] = deque()
        self._is_flushing = False
        self._skip_timer: asyncio.TimerHandle | None = None
        self._is_built = asyncio.Event()
        self.is_over = False
        self.opened_ms = self.flushed_ms = driver.wall_ms()
        self.read_at_s = asyncio.get_running_loop().time()
        self.requests = self.answers = self.sent_bytes = 0
        self._asked: dict[Position | None, float] = {}
        self._source: PageSource = (
            RecordPages(subscription, form, kind)
            if self._has_board
            else JournalPages(subscription, kind)
        )
        self._consumer: Consumer = driver.open(session, UNLIMITED, lasts=True)
        self._consumer.on_woken = self._wake
        try:
            driver.subscribe(session, NAME, subscription)
        except BaseException:
            driver.close(session)
            raise
        usage.hold(subscription.topic, subscription.lane_id)
        self.position = self.tail
        self._check_built()

    # --- What readers ask

    async def page(self, since: Position | None) -> Page:
        """Return the page after a position, which may be empty; None: from the beginning.

        Raises:
            Refused: topic-unknown; not-ready where the stream was closed meanwhile;
                bookmark-expired for a position that is no longer kept.
        """
        await self.built()
        return self.page_now(since)

    async def built(self) -> None:
        """Wait until the board is built, so that there are pages and positions."""
        await self._is_built.wait()

    async def next_page(
        self,
        since: Position,
        seconds_max: float,
        while_waiting: Callable[[Callable[[], None]], None] | None = None,
    ) -> Page:
        """Return the page after a position once it has rows, or an empty one after `seconds_max`.

        `while_waiting` is given a function that ends the wait.

        Raises:
            Refused: as `page`.
        """
        page = await self.page(since)
        if page.is_news:
            return page
        found: asyncio.Future[Page | Refused] = asyncio.get_running_loop().create_future()

        def answer(outcome: Page | Refused) -> None:
            if not found.done():  # the request may have been cancelled
                found.set_result(outcome)

        waiter = self.wait(page.next, seconds_max, answer)
        if while_waiting is not None:
            while_waiting(partial(self.expire, waiter))
        try:
            outcome = await found
        finally:
            self.leave(waiter)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    @property
    def is_built(self) -> bool:
        """True once the board is built, so that pages can be made."""
        return self._is_built.is_set()

    def page_now(self, since: Position | None) -> Page:
        """Return the page after a position; the stream has to be built.

        Raises:
            Refused: as `page`.
        """
        self.read_at_s = asyncio.get_running_loop().time()
        if self.is_over:
            raise self._ended()
        since = self._in_this_epoch(since)
        self._asked[since] = self.read_at_s
        if len(self._asked) > POSITIONS_MAX:
            self._forget_asked()
        if since is not None and self._is_in_step(since):
            return Page(since, self._source.skip_unmatched(self._topic, since))
        page = self._pages.get(since)
        return self._make_page(since) if page is None else page

    def wait(self, since: Position, seconds_max: float, answer: Answering) -> Waiter:
        """Call `answer` once there are rows after a position, or with none after a timeout."""
        waiter = Waiter(since, answer)
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_later(seconds_max, self.expire, waiter)
        self._waiting.setdefault(since, {})[waiter] = None
        if not self._has_board and self._skip_timer is None:
            self._skip_timer = loop.call_later(SKIPPED_EVERY_S, self._skip_others)
        return waiter

    def expire(self, waiter: Waiter) -> None:
        """Answer a waiting request with an empty page."""
        if waiter.timer is not None:
            self.read_at_s = asyncio.get_running_loop().time()
            self.leave(waiter)
            waiter.answer(Page(waiter.since, waiter.since))

    def leave(self, waiter: Waiter) -> None:
        """Forget a waiting request that was answered, or whose client has left."""
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        others = self._waiting.get(waiter.since)
        if others is not None:
            others.pop(waiter, None)
            if not others:
                del self._waiting[waiter.since]

    def count_request(self) -> None:
        """Count a request, once it is known who answers it."""
        self.requests += 1

    def count_answer(self, sent_bytes: int) -> None:
        """Count an answer with rows."""
        self.answers += 1
        self.sent_bytes += sent_bytes

    @property
    def counts(self) -> PollCounts:
        """Requests and answers since it was opened."""
        return PollCounts(self.requests, self.answers)

    @property
    def positions(self) -> int:
        """The number of positions at which requests wait."""
        return len(self._waiting)

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return sum(len(waiters) for waiters in self._waiting.values())

    def read_positions(self) -> set[Position | None]:
        """Return the positions at which requests wait, and those of recent requests."""
        since_s = asyncio.get_running_loop().time() - self._counts_s
        asked = {position for position, at_s in self._asked.items() if at_s >= since_s}
        return asked | self._waiting.keys()

    def age_ms(self, position: Position) -> int | None:
        """Return for how long there has been a message after a position, 0 where there is none.

        None: the journal does not reach back to it.
        """
        topic = self._topic
        if not topic.journal_reaches(Bookmark(position.epoch, position.offset)):
            return None
        following = topic.journal.after(position.offset, until=position.offset + 1)
        return max(0, self._driver.wall_ms() - following[0].timestamp_ms) if following else 0

    @property
    def is_unread(self) -> bool:
        """True if nobody has read it for a long time."""
        idle_s = asyncio.get_running_loop().time() - self.read_at_s
        interval_s = self.subscription.lane_id.interval_ns / 1e9
        return idle_s > min(max(UNREAD_S, 3 * interval_s), UNREAD_S_MAX)

    @property
    def tail(self) -> Position:
        """The position of the topic's head, whether that was flushed or not."""
        return Position(self._topic.epoch, self._topic.head, mark=self._source.mark)

    def close(self) -> None:
        """End the stream; waiting requests get an empty page, and learn why when they repeat it."""
        if self.is_over:
            return
        self.is_over = True
        self.usage.release(self.subscription.topic, self.subscription.lane_id)
        self._is_built.set()
        for since in list(self._waiting):
            self._answer(since, Page(since, since))
        self._pages.clear()
        self._driver.close(self._session)

    # --- Flushes

    def _skip_others(self) -> None:
        """Move waiting requests past messages that do not match.

        The next flush follows only a message that matches, and the journal may not reach back to
        their positions by then.
        """
        self._skip_timer = None
        if self.is_over or not self._waiting:
            return
        lane = self._driver.engine.session(self._session).only_subscriber.lane
        if lane is not None and lane.deadline is None and not self._is_flushing:
            for since in list(self._waiting):
                if self._is_in_step(since):
                    self._move_waiters(since, self.tail)
        loop = asyncio.get_running_loop()
        self._skip_timer = loop.call_later(SKIPPED_EVERY_S, self._skip_others)

    def _wake(self) -> None:
        self._is_flushing = True
        self._driver.streams.call_soon(self._flush)

    def _flush(self) -> None:
        """Take what the lane has flushed; then show readers what has changed by now."""
        outputs = self._consumer.take(TAKEN_BYTES_AT_ONCE)
        if any(isinstance(output, Unsubscribed | Goodbye) for output in outputs):
            self.close()
            return
        if outputs:  # take until there are no more: only then the session is announced again
            self._wake()
            return
        try:
            self.position = self.tail
        except TopicUnknown:
            self.close()
            return
        self._is_flushing = False
        self.flushed_ms = self._driver.wall_ms()
        self._check_built()
        self._forget_asked()
        self._pages.clear()
        self._kept_bytes = 0
        self._released = deque(self._waiting)
        self._release()

    def _release(self) -> None:
        """Answer the requests that wait at the first two positions; then let streams write.

        Both pages lead to the present head: from the next flush on their readers are at one
        position. One page at a time would lead each to another head, so that they never meet.
        """
        for _ in range(RELEASED_AT_ONCE):
            if not self._released or self.is_over:
                return
            since = self._released.popleft()
            if since in self._waiting:
                self._release_from(since)
        if self._released:
            self._driver.streams.call_soon(self._release, behind=True)

    def _release_from(self, since: Position) -> None:
        try:
            page = self._make_page(self._in_this_epoch(since))
        except Refused as refusal:
            self._answer(since, refusal)
        else:
            if page.is_news:
                self._answer(since, page)
            else:
                self._move_waiters(since, page.next)

    def _move_waiters(self, since: Position, to: Position) -> None:
        """Let requests at a position wait at a later one, as no message between them matches.

        Otherwise the journal would drop their position in the end, and refuse it.
        """
        waiters = self._waiting.pop(since)
        for waiter in waiters:
            waiter.since = to
        self._waiting.setdefault(to, {}).update(waiters)

    def _answer(self, since: Position, outcome: Page | Refused) -> None:
        for waiter in self._waiting.pop(since):
            if waiter.timer is not None:
                waiter.timer.cancel()
                waiter.timer = None
            # Scheduled like streams: thousands may wait, and each is written a page.
            self._driver.streams.call_soon(partial(waiter.answer, outcome))

    def _forget_asked(self) -> None:
        """Forget positions without recent requests, and the oldest of too many."""
        since_s = self.read_at_s - self._counts_s
        asked = [each for each in self._asked.items() if each[1] >= since_s]
        if len(asked) > POSITIONS_MAX // 2:
            asked = sorted(asked, key=lambda each: each[1])[-POSITIONS_MAX // 2 :]
        self._asked = dict(asked)

    @property
    def _counts_s(self) -> float:
        return max(POSITIONS_S, self.subscription.lane_id.interval_ns / 1e9)

    def _ended(self) -> Refused:
        """Return the refusal of a stream that has ended: for good, or to be repeated."""
        try:
            name = self._topic.name
        except TopicUnknown:
            return topic_unknown(self.subscription.topic)
        return Refused("not-ready", f"The stream of {name} restarts.", retry_after_s=1)

    def _check_built(self) -> None:
        """Begin to serve readers once the board is built, which may take several steps."""
        if not self._has_board or self.subscription.lane_id.feed in self._topic.feeds:
            self._source.begin(self._topic)
            self._is_built.set()

    # --- Pages

    def _make_page(self, since: Position | None) -> Page:
        page = self._source.page(self._topic, since)
        size = PAGE_BYTES + len(page.body)
        if self._kept_bytes + size <= KEPT_BYTES_MAX:
            self._kept_bytes += size
            self._pages[since] = page
        return page

    def _is_in_step(self, since: Position) -> bool:
        """Return True for a reader that has the rows of the last flush, or newer ones."""
        if since.cut is not None or since.mark != self.position.mark:
            return False
        if since.epoch != self.position.epoch:
            return False
        return self.position.offset <= since.offset <= self._topic.head

    def _in_this_epoch(self, since: Position | None) -> Position | None:
        """Return a position as one of the present epoch, if that continues the position's epoch.

        A bookmark has no mark. It gets that of the stream: a reader that begins at a bookmark is
        taken to have the rows before it, of whatever form they were. It may have rows from behind
        it, too, as ids are low-water marks (rule resume-6): as a part it gets all removals since.
        In another epoch those rows may be lost, and only a snapshot corrects its records.
        """
        if since is None:
            return None
        if not since.mark:
            if self._has_board and since.epoch != self._topic.epoch:
                return since
            cut = since.offset if since.cut is None and self._has_board else since.cut
            since = replace(since, cut=cut, mark=self._source.mark)
        if since.epoch == self._topic.epoch:
            return since
        # A part of a snapshot leaves out what had changed up to its cut: that has to be there, too.
        seen = since.offset if since.cut is None else max(since.offset, since.cut)
        placed = self._topic.place(Bookmark(since.epoch, seen))
        return replace(since, epoch=placed.epoch)

    @property
    def _has_board(self) -> bool:
        """True for a topic with a key; otherwise the stream is the journal."""
        return self.subscription.lane_id.oof

    @property
    def _topic(self) -> Topic:
        return self._driver.engine.topic(self.subscription.topic)


class PolledStreams:
    """The polled streams of a gateway, each opened by its first request and closed if unread."""

    def __init__(self, context: SessionContext) -> None:
        self._past = PollCounts()
        self._context = context
        self._driver, self._quotas = context.driver, context.quotas
        self._streams: dict[Identity, PolledStream] = {}
        self._numbers = itertools.count(1)
        self._granted: dict[
            tuple[str, PollTexts, Grants | None], tuple[tuple[TopicRecord, Definition], PollRequest]
        ] = {}

    def granted(self, name: str, asked: PollTexts, grants: Grants | None) -> PollRequest:
        """Decide what a request gets of a topic, once for all equal ones with the same grants.

        Raises:
            Refusal: as `granted_poll`.
        """
        if grants is not None:  # first: a topic that may not be read must not be known either
            grants.required(name)
        record = self._context.catalog.get(name).record
        # Each change of a topic makes new objects in the catalog and in the engine.
        made_of = record, self._driver.engine.topic(name).definition
        kept = self._granted.get((name, asked, grants))
        if kept is not None and kept[0][0] is made_of[0] and kept[0][1] is made_of[1]:
            return kept[1]
        granted = granted_poll(self._context, name, asked, grants)
        if len(self._granted) >= GRANTED_MAX:
            self._granted.clear()
        self._granted[name, asked, grants] = made_of, granted
        return granted

    def stream(self, poll: PollRequest, subject: Subject | None) -> PolledStream:
        """Return the stream of these rows, opened if this is its first request.

        Raises:
            LimitReached: there are too many sessions, subscriptions or different lanes, in all or
                of the subject.
        """
        subscription, form = poll.subscription, poll.form
        identity = subscription.topic, subscription.lane_id, form
        found = self._streams.get(identity)
        if found is not None and found.is_over:
            self._forget(identity)
            found = None
        if found is None:
            found = self._begin(identity, poll, subject)
        return found

    def _begin(
        self, identity: Identity, poll: PollRequest, subject: Subject | None
    ) -> PolledStream:
        topic, lane_id, form = identity
        usage = self._quotas.usage(NOBODY if subject is None else subject.sub)
        usage.check(subject, [(topic, lane_id)], 1)
        session = f"polled-{next(self._numbers)}"
        begun = PolledStream(self._driver, session, usage, poll.subscription, form, poll.kind)
        self._streams[identity] = begun
        self._check_later(identity, begun)
        return begun

    def make_room(self, topic: str | None = None, sub: str | None = None) -> bool:
        """Close the stream that was read the longest time ago, of those at which nobody waits.

        Polled streams hold a session and a lane as long as a reader might return; readers that
        need one now have precedence.

        Args:
            topic: of which a stream is to be closed; None: of any.
            sub: the subject that is charged for it; None: any.

        Returns:
            False if there is none.
        """
        unwaited = [
            each
            for each, stream in self._streams.items()
            if not stream.positions
            and topic in (None, stream.subscription.topic)
            and sub in (None, stream.usage.sub)
        ]
        if not unwaited:
            return False
        oldest = min(unwaited, key=lambda each: self._streams[each].read_at_s)
        self._streams[oldest].close()
        self._forget(oldest)
        return True

    def __len__(self) -> int:
        return len(self._streams)

    def listed(self) -> list[PolledStream]:
        """Return the streams whose topics are still there, by topic."""
        streams = [stream for stream in self._streams.values() if not stream.is_over]
        return sorted(streams, key=lambda each: each.subscription.topic)

    @property
    def counts(self) -> PollCounts:
        """What all streams have counted, those that were closed included."""
        return sum((each.counts for each in self._streams.values()), self._past)

    @property
    def positions(self) -> int:
        """The number of positions at which readers wait, of all streams."""
        return sum(stream.positions for stream in self._streams.values())

    def close(self) -> None:
        """End all streams."""
        for identity, stream in list(self._streams.items()):
            stream.close()
            self._forget(identity)

    def _forget(self, identity: Identity) -> None:
        self._past += self._streams.pop(identity).counts

    def _check_later(self, identity: Identity, stream: PolledStream) -> None:
        asyncio.get_running_loop().call_later(UNREAD_S, self._close_if_unread, identity, stream)

    def _close_if_unread(self, identity: Identity, stream: PolledStream) -> None:
        if self._streams.get(identity) is not stream:
            return
        if stream.is_over or stream.is_unread:
            stream.close()
            self._forget(identity)
        else:
            self._check_later(identity, stream)
