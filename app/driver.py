"""The driver: the shell around the engine. The only clock, the only timer, who is woken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from app.consumer import Consumer
from app.drain import PATIENCE_S, PATIENCE_S_PER_REQUEST, Drain
from app.figures import Figures
from app.idle import Idle
from app.late import Moment
from app.logs import event as log_event
from app.logs import shown_id
from app.slices import slices
from app.timer import Timer
from conflation.bookmark import Bookmark
from conflation.definition import Definition
from conflation.duration import Instant
from conflation.engine import Engine
from conflation.errors import SessionUnknown
from conflation.frame import Frame
from conflation.kept import Kept
from conflation.outputs import (
    CloseReason,
    PastWanted,
    QueueCrossed,
    RecordsExpired,
    SessionClosed,
    SessionReady,
)
from conflation.sessions.roster import GONE
from conflation.sessions.session import QueueLimits
from conflation.subscription import Subscription

logger = logging.getLogger("tidegate.driver")


def wall_ms() -> int:
    """Wall time in milliseconds of the epoch, as messages are stamped."""
    return time.time_ns() // 1_000_000


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
        self._drain = Drain(engine, limits)
        self._timer = Timer(self.now, self._advance)
        self._idle = Idle(lambda: engine.has_long_queues, self._relieve)

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
        for piece in slices(frames, self._drain.least_limits(topic)):
            now = self.now()
            self.engine.publish(topic, piece, now)
            if piece[-1] is frames[-1]:
                self.settle()
                self._idle.look()
                return
            self.engine.advance(now)
            self.settle()
            await asyncio.sleep(0)  # a turn of the loop, in which woken streams write
            patience_s -= await self._drain.wait(topic, min(patience_s, PATIENCE_S))

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
        self._drain.note_limits(session, limits)
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
        self._drain.note_limits(session, limits)
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
            self._drain.forget(session)
        self.settle()

    def close_all(self, reason: CloseReason) -> int:
        """Say goodbye to every session; returns how many there were."""
        sessions = list(self._consumers)
        for session in sessions:
            self.close(session, reason)
        return len(sessions)

    def taken(self, session: str) -> None:
        """A session took something, or has taken everything there was."""
        self._drain.taken(session)
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
        self._timer.set(self.engine.next_deadline())

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

    def _relieve(self) -> bool:
        """Conflate a bounded part of a long queue."""
        has_done = self.engine.relieve(self.now())
        self.settle()
        return has_done

    def _advance(self, due: Instant) -> None:
        # A loop may call a little early: what was promised for `due` happens at `due`.
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
