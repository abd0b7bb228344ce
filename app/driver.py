"""The driver: the shell around the engine. The only clock, the only timer, who is woken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from app.figures import Figures
from app.late import Moment
from app.logs import event as log_event
from app.logs import shown_id
from app.slices import slices
from conflation.bookmark import Bookmark
from conflation.definition import Definition
from conflation.duration import Instant
from conflation.engine import Engine
from conflation.errors import SessionUnknown
from conflation.frame import Frame
from conflation.kept import Kept
from conflation.outputs import (
    CloseReason,
    Output,
    PastWanted,
    QueueCrossed,
    RecordsExpired,
    SessionClosed,
    SessionReady,
)
from conflation.sessions.roster import GONE
from conflation.sessions.session import QueueLimits, SeatId
from conflation.subscription import Subscription

# How long a request of several slices waits for streams that are behind but take what they can,
# for one and in all. One that was given up is not waited for before it has taken something.
PATIENCE_S = 1.0
PATIENCE_S_PER_REQUEST = 5.0

# Idle time is what a loop has that calls this soon, and no later than that.
IDLE_LOOK_S = 0.005
IDLE_LATE_S = 0.002

logger = logging.getLogger("tidegate.driver")


def wall_ms() -> int:
    """Wall time in milliseconds of the epoch, as messages are stamped."""
    return time.time_ns() // 1_000_000


class Consumer:
    """One session's end towards its stream: take what is there, else wait to be woken.

    `is_over`: another one has taken its place; what it was told last is all that it gets.
    """

    def __init__(self, driver: Driver, session: str) -> None:
        self.session = session
        self.is_over = False
        self._driver = driver
        self._woken = asyncio.Event()
        self._notices: deque[bytes] = deque()

    def take(self, bytes_max: int) -> list[Output]:
        """What to send now; nothing left means: wait."""
        if self.is_over:
            return []
        try:
            outputs = self._driver.engine.take(self.session, bytes_max)
        except SessionUnknown:
            outputs = []
        self._driver.taken(self.session)
        return outputs

    async def wait(self, seconds_max: float) -> bool:
        """Until there is something to take; False when that took longer than it may."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def wake(self) -> None:
        """There is something to take."""
        self._woken.set()

    def tell(self, notice: bytes) -> None:
        """An event that is not the engine's; it goes out before the next outputs."""
        self._notices.append(notice)
        self._woken.set()

    def notices(self) -> bytes:
        """What was told since the last call."""
        told = b"".join(self._notices)
        self._notices.clear()
        return told

    def caught_up(self) -> list[tuple[SeatId, Bookmark]]:
        """Its subscriptions for which nothing is on the way, and up to where they have it all."""
        if self.is_over:
            return []
        try:
            return self._driver.engine.caught_up(self.session)
        except SessionUnknown:
            return []

    def moment(self, *, has_unsent: bool, is_behind: bool) -> Moment:
        """What is known at a write of how late it may be."""
        return self._driver.moment(has_unsent=has_unsent, is_behind=is_behind)

    def note_unsent(self, unsent_bytes: int) -> None:
        """So many bytes does the socket hold that its peer has not acknowledged."""
        if not self.is_over:
            self._driver.note_unsent(self.session, unsent_bytes)

    def give_up(self, reason: CloseReason) -> None:
        """The peer cannot even be told goodbye; the reason is noted."""
        if not self.is_over:
            self._driver.close(self.session, reason)

    def close(self) -> None:
        """The peer is gone, or has been told goodbye."""
        if not self.is_over:
            self.is_over = True
            self._driver.close(self.session)

    def leave(self, farewell: bytes) -> None:
        """Make room for another consumer of the session; the stream ends with this event."""
        self.close()
        self.tell(farewell)


class Driver:
    """Owns the engine: reads the clock once for each call, re-arms one timer after each."""

    def __init__(
        self,
        engine: Engine,
        limits: QueueLimits,
        clock: Callable[[], Instant] = time.monotonic_ns,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.closed_sessions: dict[str, int] = {}
        self.figures = Figures()
        self.on_expired: Callable[[RecordsExpired], None] | None = None
        self.on_closed: Callable[[SessionClosed], None] | None = None
        self.on_crossed: Callable[[QueueCrossed], None] | None = None
        self.on_past_wanted: Callable[[PastWanted], None] | None = None
        self._clock = clock
        self.wall_ms = wall_ms
        self._arrival_ages_ms: dict[str, int] = {}
        self._latest: Instant = 0
        self._consumers: dict[str, Consumer] = {}
        self._taken = asyncio.Event()
        self._given_up: set[str] = set()
        self._tight: set[str] = set()
        self._timer: asyncio.Handle | None = None
        self._timer_due: Instant | None = None
        self._idle_look: asyncio.TimerHandle | None = None

    def define_topic(self, name: str, definition: Definition, epoch: str) -> None:
        """Make a topic known to the engine, or give it its new definition."""
        self.engine.define_topic(name, definition, epoch)
        self.settle()

    def restore_topic(self, name: str, kept: Kept) -> None:
        """Give a topic that has just been made what was kept of it."""
        self.engine.restore_topic(name, kept, self.now(), self.wall_ms())
        self.settle()

    def drop_topic(self, name: str) -> None:
        """End a topic; its subscribers are told."""
        self.engine.drop_topic(name)
        self._arrival_ages_ms.pop(name, None)
        self.settle()

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        """Apply messages in slices; sockets drain between them, so that none breaches a queue."""
        if frames:
            self._arrival_ages_ms[topic] = self.wall_ms() - frames[0].timestamp_ms
        patience_s = PATIENCE_S_PER_REQUEST
        for piece in slices(frames, self._least_limits(topic)):
            now = self.now()
            self.engine.publish(topic, piece, now)
            if piece[-1] is frames[-1]:
                self.settle()
                self._relieve_later()
                return
            self.engine.advance(now)
            self.settle()
            await asyncio.sleep(0)  # a turn of the loop, in which woken streams write
            patience_s -= await self._drained(topic, min(patience_s, PATIENCE_S))

    def open(
        self,
        session: str,
        limits: QueueLimits | None = None,
        *,
        lasts: bool = False,
        conflated: bool = True,
    ) -> Consumer:
        """Open a session without subscriptions; one that `lasts` may stay so.

        Raises:
            LimitReached: nothing was opened.
        """
        limits = limits or self.limits
        self.engine.open_session(session, limits, lasts=lasts, conflated=conflated)
        self._note_limits(session, limits)
        consumer = self._consumers[session] = Consumer(self, session)
        return consumer

    def subscribe(
        self, session: str, name: str, subscription: Subscription, *, announced: bool = False
    ) -> Bookmark:
        """Add a subscription; returns the cut: what follows its opening is newer than this.

        Raises:
            SessionUnknown, TopicUnknown, LimitReached, BookmarkExpired: nothing was added.
        """
        cut = self.engine.subscribe(session, name, subscription, self.now(), announced=announced)
        self.settle()
        return cut

    def unsubscribe(self, session: str, name: str) -> None:
        """End a subscription.

        Raises:
            SessionUnknown, SubscriptionUnknown: nothing was ended.
        """
        self.engine.unsubscribe(session, name)
        self.settle()

    def change(self, session: str, name: str, subscription: Subscription) -> None:
        """Give a running subscription another interval, filter or options.

        Raises:
            SessionUnknown, SubscriptionUnknown: nothing was changed.
        """
        self.engine.change(session, name, subscription, self.now())
        self.settle()

    def tune(self, session: str, limits: QueueLimits, *, conflated: bool) -> None:
        """Give a session other limits, and its queue policies or none.

        Raises:
            SessionUnknown: it has said goodbye already.
        """
        self.engine.tune_session(session, limits, conflated=conflated)
        self._note_limits(session, limits)
        self.settle()

    def note_unsent(self, session: str, unsent_bytes: int) -> None:
        """What a session's socket holds that its peer has not acknowledged."""
        with contextlib.suppress(SessionUnknown):  # it has said goodbye already
            self.engine.note_unsent(session, unsent_bytes)
        self.settle()

    def moment(self, *, has_unsent: bool, is_behind: bool) -> Moment:
        """What is known now of how late a write may be."""
        return Moment(self.wall_ms(), has_unsent, is_behind, self._arrival_ages_ms)

    def close(self, session: str, reason: CloseReason | None = None) -> None:
        """End a session, with a goodbye if there is a reason for one."""
        with contextlib.suppress(SessionUnknown):  # it has said goodbye already
            self.engine.close_session(session, reason)
        if reason is None:
            self._consumers.pop(session, None)
            self._given_up.discard(session)
            self._tight.discard(session)
            self._taken.set()
        self.settle()

    def close_all(self, reason: CloseReason) -> int:
        """Say goodbye to every session; returns how many there were."""
        sessions = list(self._consumers)
        for session in sessions:
            self.close(session, reason)
        return len(sessions)

    def taken(self, session: str) -> None:
        """A session took something, or has taken everything there was."""
        self._given_up.discard(session)
        self._taken.set()
        self.settle()

    def settle(self) -> None:
        """After each call into the engine: wake who has something to take, re-arm the timer."""
        for event in self.engine.events():
            match event:
                case SessionReady():
                    if (consumer := self._consumers.get(event.session)) is not None:
                        consumer.wake()
                case SessionClosed():
                    self._note_closed(event)
                case RecordsExpired() if self.on_expired is not None:
                    self.on_expired(event)
                case QueueCrossed() if self.on_crossed is not None:
                    self.on_crossed(event)
                case PastWanted() if self.on_past_wanted is not None:
                    self.on_past_wanted(event)
        self._rearm()

    async def _drained(self, topic: str, seconds_max: float) -> float:
        """Wait until every session has room for another slice; returns for how long."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            async with asyncio.timeout(seconds_max):
                while self._crowded(topic):
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:
            self._given_up |= self._crowded(topic)
        return loop.time() - began_at

    def _note_limits(self, session: str, limits: QueueLimits) -> None:
        """Which sessions may queue less than others do."""
        most = self.limits
        if limits.messages_max < most.messages_max or limits.bytes_max < most.bytes_max:
            self._tight.add(session)
        else:
            self._tight.discard(session)

    def _least_limits(self, topic: str) -> QueueLimits:
        """What every session that queues this topic's messages may have waiting."""
        found = [self.limits, *self.engine.limits_at(topic, self._tight)]
        messages_max = min(limits.messages_max for limits in found)
        return QueueLimits(messages_max, min(limits.bytes_max for limits in found))

    def _crowded(self, topic: str) -> set[str]:
        return self.engine.crowded(topic) - self._given_up

    def _note_closed(self, event: SessionClosed) -> None:
        if event.reason is None:
            self.figures.left += 1
            _tell_closed(event.session, GONE)
            return
        if event.session not in self._consumers:
            return  # the peer left after its reason was noted
        if self.on_closed is not None:
            self.on_closed(event)
        self.closed_sessions[event.reason] = self.closed_sessions.get(event.reason, 0) + 1
        _tell_closed(event.session, event.reason)

    def _relieve_later(self) -> None:
        """Have long queues conflated in idle time, a bounded part of one at a time."""
        if self._idle_look is None and self.engine.has_long_queues:
            loop = asyncio.get_running_loop()
            self._idle_look = loop.call_later(IDLE_LOOK_S, self._relieve, loop.time() + IDLE_LOOK_S)

    def _relieve(self, due_s: float) -> None:
        self._idle_look = None
        is_idle = asyncio.get_running_loop().time() <= due_s + IDLE_LATE_S
        if not is_idle or self.engine.relieve(self.now()):
            self._relieve_later()
        self.settle()

    def _rearm(self) -> None:
        due = self.engine.next_deadline()
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, due
        if due is None:
            return
        loop = asyncio.get_running_loop()
        wait_ns = due - self.now()
        if wait_ns <= 0:
            self._timer = loop.call_soon(self._advance, due)
        else:
            self._timer = loop.call_later(wait_ns / 1e9, self._advance, due)

    def _advance(self, due: Instant) -> None:
        # A loop may call a little early: what was promised for `due` happens at `due`.
        self._timer, self._timer_due = None, None
        self._latest = max(self.now(), due)
        self.engine.advance(self._latest)
        self.settle()
        self.figures.flush_lateness.note_ns(self.now() - due)

    def now(self) -> Instant:
        """The clock, never running back."""
        self._latest = max(self._latest, self._clock())
        return self._latest


def _tell_closed(session: str, reason: str) -> None:
    shown = shown_id(session)
    figures = log_event("session-closed", session=shown, reason=reason)
    logger.info("session %s closed: %s", shown, reason, extra=figures)
