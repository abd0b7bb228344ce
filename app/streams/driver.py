"""The driver: runs the engine on the event loop, with its only clock and timer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tidegate.app.figures import Counters
from tidegate.app.logs import event as log_event
from tidegate.app.logs import shown_id
from tidegate.app.streams.backpressure import (
    PATIENCE_S,
    PATIENCE_S_PER_REQUEST,
    PublishBackpressure,
    slice_limits,
    split_publish,
)
from tidegate.app.streams.compression import coding_of
from tidegate.app.streams.encoding import Style
from tidegate.app.streams.fanout import CohortWriter, Recipient
from tidegate.app.streams.notices import WriteContext
from tidegate.app.streams.scheduler import IdleTask, StreamScheduler, Timer
from tidegate.app.timers import wait_until_set, wall_ms
from tidegate.conflation.definition import Definition
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import LimitReached, SessionUnknown
from tidegate.conflation.frame import Frame, RestoredTopic
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.outputs import (
    CloseReason,
    CohortReady,
    HistoryWanted,
    Output,
    QueueCrossed,
    RecordsExpired,
    Rows,
    SessionClosed,
    SessionReady,
)
from tidegate.conflation.sessions.registry import GONE
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.conflation.subscription import Subscription
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import SECOND, Instant

logger = logging.getLogger("tidegate.driver")
_CLOSED = {
    GONE: "its peer left",
    CloseReason.QUEUE_LIMIT: "its message queue is full",
    CloseReason.SHUTDOWN: "the gateway shuts down",
    CloseReason.CLOSED_BY_ADMIN: "an administrator closed it",
    CloseReason.REPLACED: "another connection replaced it",
    CloseReason.UNSUBSCRIBED: "its last subscription ended",
    CloseReason.WRITE_TIMEOUT: "its peer did not read in time",
    CloseReason.TOKEN_EXPIRED: "its token expired",
    CloseReason.REVOKED: "its access was revoked",
}


def _nobody() -> bool:
    return False


class Driver:
    """Owns the engine. Reads the clock once for each call, and re-arms one timer after each."""

    def __init__(
        self,
        engine: Engine,
        limits: QueueLimits,
        clock: Callable[[], Instant] = time.monotonic_ns,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.make_room: Callable[[], bool] = _nobody
        """Ends a polled stream at which nobody waits; returns False if there is none."""
        self.closed_sessions: dict[str, int] = {}
        self.figures = Counters()
        self.on_expired: Callable[[RecordsExpired], None] | None = None
        self.on_closed: Callable[[SessionClosed], None] | None = None
        self.on_crossed: Callable[[QueueCrossed], None] | None = None
        self.on_history_wanted: Callable[[HistoryWanted], None] | None = None
        self._clock, self.wall_ms = clock, wall_ms
        self._arrival_ages_ms: dict[str, int] = {}
        # The engine's time never goes back, not even if the loop calls a timer a little early.
        self._latest: Instant = 0
        self._consumers: dict[str, Consumer] = {}
        self._cohorts: dict[Cohort, CohortWriter] = {}
        self._backpressure = PublishBackpressure(engine, limits)
        self.streams = StreamScheduler()
        self._new_writer = partial(
            CohortWriter, take=self._take_together,
            wrote=self.figures.wrote_alike, scheduler=self.streams)  # fmt: skip
        self._timer = Timer(self.now, self._advance)
        self._idle = IdleTask(lambda: engine.has_long_queues, self._conflate_idle)

    def define_topic(self, name: str, definition: Definition, epoch: str) -> None:
        """Define a topic in the engine, or give it a new definition."""
        self.engine.define_topic(name, definition, epoch)
        self.dispatch()

    def restore_topic(self, name: str, kept: RestoredTopic) -> None:
        """Load the stored state of a topic that has just been defined."""
        self.engine.restore_topic(name, kept, self.now(), self.wall_ms())
        self.dispatch()

    def drop_topic(self, name: str, reason: str = "REMOVED") -> None:
        """End a topic, and its subscriptions with this reason."""
        self.engine.drop_topic(name, reason)
        self._arrival_ages_ms.pop(name, None)
        self.dispatch()

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        """Apply messages in slices; streams write between them, so that no queue overflows.

        If the topic restarts meanwhile, the rest is skipped: it may not be in the new history.

        Raises:
            TopicUnknown: there is none, or not any more.
        """
        if not frames:
            return
        self._arrival_ages_ms[topic] = self.wall_ms() - frames[0].timestamp_ms
        found = self.engine.topic(topic)
        epoch, patience_s = found.epoch, PATIENCE_S_PER_REQUEST
        for piece in self._slices(topic, frames):
            now = self.now()
            self.engine.publish(topic, piece, now)
            if piece[-1] is frames[-1]:
                self.dispatch()
                self._idle.schedule()
                return
            # Flush what became due, or a large publish would delay every interval.
            self.engine.advance(now)
            self.dispatch()
            await asyncio.sleep(0)  # an iteration, in which woken streams write
            # All slices of a request share one budget of waiting.
            patience_s -= await self._backpressure.wait(topic, min(patience_s, PATIENCE_S))
            if self.engine.topic(topic) is not found or found.epoch != epoch:
                return

    def publishes_at_once(self, topic: str, messages: int, size_bytes: int) -> bool:
        """Return True if `publish` waits for nothing: messages of so many bytes are one slice."""
        if messages == 1:
            return True
        limits = self._backpressure.least_limits(topic)
        messages_max, bytes_max = slice_limits(limits, self.engine.topic(topic).message_cost)
        return messages <= messages_max and size_bytes <= bytes_max

    def _slices(self, topic: str, frames: Sequence[Frame]) -> Iterable[Sequence[Frame]]:
        # A single message is a slice, whatever it costs: to sum that up over thousands of boards
        # takes longer than publishing it.
        if len(frames) == 1:
            return (frames,)
        limits = self._backpressure.least_limits(topic)
        return split_publish(frames, limits, self.engine.topic(topic).message_cost)

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
        try:
            self.engine.open_session(session, limits, lasts=lasts, conflated=conflated)
        except LimitReached:
            if not self.make_room():
                raise
            self.engine.open_session(session, limits, lasts=lasts, conflated=conflated)
        self._backpressure.note_limits(session, limits)
        consumer = self._consumers[session] = Consumer(self, session)
        return consumer

    def subscribe(
        self, session: str, name: str, subscription: Subscription, *, announced: bool = False
    ) -> Bookmark:
        """Add a subscription; return its cut: rows after the backfill are newer than this.

        Raises:
            SessionUnknown, TopicUnknown, LimitReached, BookmarkExpired: nothing was added.
        """
        cut = self.engine.subscribe(session, name, subscription, self.now(), announced=announced)
        self.dispatch()
        return cut

    def unsubscribe(self, session: str, name: str) -> None:
        """End a subscription.

        Raises:
            SessionUnknown, SubscriptionUnknown: nothing was ended.
        """
        self.engine.unsubscribe(session, name)
        self.dispatch()

    def change(self, session: str, name: str, subscription: Subscription) -> None:
        """Give a running subscription another interval, filter or options.

        Raises:
            SessionUnknown, SubscriptionUnknown: nothing was changed.
        """
        self.engine.change(session, name, subscription, self.now())
        self.dispatch()

    def tune(self, session: str, limits: QueueLimits, *, conflated: bool) -> None:
        """Set a session's limits, and switch its queue policies on or off.

        Raises:
            SessionUnknown: it has said goodbye already.
        """
        self.engine.set_session_limits(session, limits, conflated=conflated)
        self._backpressure.note_limits(session, limits)
        self.dispatch()

    def note_unsent(self, session: str, unsent_bytes: int) -> None:
        """Count the bytes that a session's socket holds and its peer has not acknowledged."""
        with contextlib.suppress(SessionUnknown):  # it has said goodbye already
            self.engine.note_unsent(session, unsent_bytes)
        self.dispatch()

    def isolate(self, session: str) -> None:
        """Remove a session from its cohort, for a trace of what it is sent."""
        self.engine.leave_cohort(session)
        self.dispatch()

    def write_context(self, *, has_unsent: bool, is_behind: bool) -> WriteContext:
        """Return what decides whether rows that are written now are late, and the cause."""
        return WriteContext(self.wall_ms(), has_unsent, is_behind, self._arrival_ages_ms)

    def close(self, session: str, reason: CloseReason | None = None) -> None:
        """Close a session; with a reason it gets a goodbye first."""
        with contextlib.suppress(SessionUnknown):  # it has said goodbye already
            self.engine.close_session(session, reason)
        # With a reason the stream still takes its goodbye, and closes the session then.
        if reason is None:
            self._consumers.pop(session, None)
            self._backpressure.forget(session)
        self.dispatch()

    def close_all(self, reason: CloseReason) -> int:
        """Close every session with a goodbye; return how many there were."""
        for session in (sessions := list(self._consumers)):
            self.close(session, reason)
        return len(sessions)

    def taken(self, session: str) -> None:
        """Wake publishers that wait, as a session has taken something or all that it had."""
        self._backpressure.taken(session)
        self.dispatch()

    def enter_cohort(
        self, session: str, recipient: Recipient, style: Style, heartbeat_s: float
    ) -> CohortWriter | None:
        """Add a stream that has taken everything to its cohort; None: its rows may differ."""
        coding = coding_of(recipient.encoder)
        cohort = self.engine.enter_cohort(session, (style.variant, coding))
        if cohort is None:
            return None
        if (writer := self._cohorts.get(cohort)) is None:
            writer = self._new_writer(cohort, style, coding=coding, heartbeat_s=heartbeat_s)
            self._cohorts[cohort] = writer
        writer.enter(recipient)
        return writer

    def leave_cohort(self, session: str, recipient: Recipient, writer: CohortWriter) -> int:
        """Remove a stream from its cohort; return the bytes that were written to it there."""
        written_bytes = writer.leave(recipient)
        self.engine.leave_cohort(session)
        if writer.is_empty:
            del self._cohorts[writer.cohort]
        self.dispatch()
        return written_bytes

    def _take_together(self, cohort: Cohort, bytes_max: int) -> Rows | None:
        self._handle_announcements()  # first: sessions that have left the cohort take their rows
        rows = self.engine.take_together(cohort, bytes_max)
        self._backpressure.all_taken(cohort.members)
        self.dispatch()
        return rows

    def dispatch(self) -> None:
        """Dispatch the engine's announcements and re-arm the timer, after each call into it."""
        self._handle_announcements()
        if self.engine.has_openings:  # streams write between two steps
            self.streams.call_soon(self._run_opening, behind=True)
        if self.engine.schedule.left_since() is not None:
            self.streams.call_soon(self._advance_left, behind=True)
        # Any call may have made an earlier deadline, or ended the earliest.
        self._timer.set(self.engine.schedule.next_new())

    def _handle_announcements(self) -> None:
        for event in self.engine.announcements():
            match event:
                case SessionReady():
                    if (consumer := self._consumers.get(event.session)) is not None:
                        consumer.wake()
                case CohortReady():
                    if (writer := self._cohorts.get(event.cohort)) is not None:
                        self.streams.call_soon(writer)
                case SessionClosed():
                    self._log_closed(event)
                case RecordsExpired() if self.on_expired is not None:
                    self.on_expired(event)
                case QueueCrossed() if self.on_crossed is not None:
                    self.on_crossed(event)
                case HistoryWanted() if self.on_history_wanted is not None:
                    self.on_history_wanted(event)

    def _run_opening(self) -> None:
        self.engine.open_step(self.now())
        self.dispatch()

    def _log_closed(self, event: SessionClosed) -> None:
        if (consumer := self._consumers.get(event.session)) is None and event.reason is not None:
            return  # the peer left after its close was logged
        shown, reason = shown_id(event.session), event.reason or GONE
        figures = log_event("session-closed", session=shown, reason=reason)
        logger.info("session %s closed: %s", shown, _CLOSED[reason], extra=figures)
        if consumer is None or event.reason is None:
            self.figures.left += 1
            return
        consumer.close_reason = event.reason
        if self.on_closed is not None:
            self.on_closed(event)
        self.closed_sessions[event.reason] = self.closed_sessions.get(event.reason, 0) + 1

    def _conflate_idle(self) -> bool:
        """Conflate a bounded part of a long queue; return False if no part could be."""
        has_done = self.engine.conflate_idle(self.now())
        self.dispatch()
        return has_done

    def _advance(self, due: Instant, *, left_first: bool = False) -> None:
        # A loop may call a little early: the engine is given `due` then.
        self._latest = max(self.now(), due)
        self.engine.advance(self._latest, left_first=left_first)
        self.figures.flush_lateness.note((self.now() - due) / SECOND)
        self.streams.call_now(self.dispatch)

    def _advance_left(self) -> None:
        if (due := self.engine.schedule.left_since()) is not None:
            self._advance(due, left_first=True)

    def now(self) -> Instant:
        """Return the clock's time, never less than before."""
        self._latest = max(self._latest, self._clock())
        return self._latest


class Consumer:
    """One reader's access to its session: takes its outputs, and waits for more.

    Attributes:
        on_woken: called by `wake` if it is set; otherwise `wait` returns.
        is_over: another consumer has replaced this one, or the peer is gone; only the notices that
            were sent before are left.
        close_reason: why the engine closed the session.
    """

    __slots__ = ("_driver", "_notices", "_woken", "close_reason", "is_over", "on_woken", "session")

    def __init__(self, driver: Driver, session: str) -> None:
        self.session = session
        self.on_woken: Callable[[], None] | None = None
        self.is_over = False
        self.close_reason: CloseReason | None = None
        self._driver = driver
        self._notices: list[bytes] | None = None
        # Made by `wait`: most streams have `on_woken` instead.
        self._woken: asyncio.Event | None = None

    def wake(self) -> None:
        """Wake the stream, as its session has outputs or notices."""
        if self.on_woken is None:
            self._event().set()
        else:
            self.on_woken()

    async def wait(self, seconds_max: float) -> bool:
        """Wait until the stream is woken; return False after `seconds_max`."""
        return await wait_until_set(self._event(), seconds_max)

    def _event(self) -> asyncio.Event:
        if self._woken is None:
            self._woken = asyncio.Event()
        return self._woken

    def take(self, bytes_max: int) -> list[Output]:
        """Return the outputs to send now; empty: wait for more."""
        if self.is_over:
            return []
        try:
            outputs = self._driver.engine.take(self.session, bytes_max)
        except SessionUnknown:
            outputs = []
        self._driver.taken(self.session)
        return outputs

    def send(self, notice: bytes) -> None:
        """Send an event that is not the engine's, before the next outputs."""
        if self._notices is None:
            self._notices = []
        self._notices.append(notice)
        self.wake()

    def notices(self) -> bytes:
        """Return the events sent since the last call."""
        sent, self._notices = self._notices, None
        return b"" if sent is None else b"".join(sent)

    def caught_up(self) -> list[tuple[SubscriberId, Bookmark]]:
        """Return the subscribers that have received everything, each with its bookmark."""
        with contextlib.suppress(SessionUnknown):
            if not self.is_over:
                return self._driver.engine.session(self.session).caught_up()
        return []

    def note_unsent(self, unsent_bytes: int) -> None:
        """Report the bytes that the peer has not acknowledged."""
        if not self.is_over:
            self._driver.note_unsent(self.session, unsent_bytes)

    def give_up(self, reason: CloseReason) -> None:
        """Close the session without a goodbye: the peer takes nothing."""
        if not self.is_over:
            self._driver.close(self.session, reason)

    def close(self) -> None:
        """Close the session: the peer is gone, or has received its goodbye."""
        if not self.is_over:
            self.is_over = True
            self._driver.close(self.session)

    def replace(self, goodbye: bytes) -> None:
        """Close in favor of the session's next consumer; the stream ends with this event."""
        self.close()
        self.send(goodbye)
