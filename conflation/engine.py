"""The engine: the verbs, and the one place where topics meet sessions.

Inputs are calls at `now` (monotonic ns), outputs are taken; the same calls give the same outputs.

    define_topic drop_topic          what there is
    restore_topic renew_topic checkpointed    what was there, and is kept
    open_session close_session       who listens
    tune_session note_unsent relieve how much it may have waiting
    subscribe unsubscribe change     to what
    publish                          what happened
    advance next_deadline            when
    take events bring                what to send, to whom, and what is missing for that
    stats                            what it came to
"""

from __future__ import annotations

from collections.abc import Sequence

from conflation.bookmark import Bookmark
from conflation.duration import Instant
from conflation.errors import LimitReached, SessionUnknown
from conflation.frame import Frame
from conflation.lanes.lane import Lane
from conflation.outputs import (
    CloseReason,
    Event,
    Goodbye,
    Output,
    PastWanted,
    Subscribed,
)
from conflation.sessions import seating
from conflation.sessions.session import UNLIMITED, QueueLimits, Seat, Session
from conflation.subscription import Subscription
from conflation.topic_verbs import TopicVerbs
from conflation.topics.feed import Feed
from conflation.topics.topic import Topic


class Engine(TopicVerbs):
    """Topics, sessions and the schedule; every bound is the caller's to say."""

    def adopt(self, seat: Seat) -> None:
        """Go on, in a session without limits, with a seat and a topic that were made elsewhere."""
        member = seat.member
        self._topics[seat.topic.name] = seat.topic
        self._ledger.begin(seat.topic.name)
        self.open_session(member.session, UNLIMITED, lasts=True)
        self._roster.find(member.session).seats[seat.id] = seat
        if seat.lane is not None and seat.feed is not None:
            self._schedule.arm(seat.lane, (seat.feed, seat.lane))
        if seat.opening is not None:
            self._schedule.arm(seat.opening, seat)

    def open_session(
        self, session_id: str, limits: QueueLimits, *, lasts: bool = False, conflated: bool = True
    ) -> None:
        """Open a session that no subscription is in yet; one that `lasts` may stay without.

        One that is not `conflated` has no queue policy: a full queue closes it.

        Raises:
            LimitReached: as many sessions as may be.
        """
        self._roster.open(Session(session_id, limits, lasts=lasts, conflated=conflated))

    def close_session(self, session_id: str, reason: CloseReason | None = None) -> None:
        """End a session: with a reason it is owed a goodbye, without one its peer is gone.

        Raises:
            SessionUnknown: it is not there, or over already.
        """
        session = self._roster.find(session_id)
        self._roster.close(session, reason)
        self._relief.forget(session)

    def tune_session(self, session_id: str, limits: QueueLimits, *, conflated: bool) -> None:
        """Give a session other limits, and its queue policies or none, at once.

        Raises:
            SessionUnknown: it is not there.
        """
        session = self._roster.find(session_id)
        session.limits, session.conflated = limits, conflated
        self._usher.reseat(session, self._now)
        self._relief.look(session)

    def note_unsent(self, session_id: str, unsent_bytes: int) -> None:
        """Say what a session's socket holds unacknowledged; it counts where there is a queue.

        Raises:
            SessionUnknown: it is not there.
        """
        self._relief.note_unsent(self._roster.find(session_id), unsent_bytes)

    def relieve(self, now: Instant) -> bool:
        """Conflate a bounded part of the longest queue in idle time; False: nothing to do."""
        self._clock(now)
        return self._relief.step()

    def subscribe(
        self,
        session_id: str,
        name: str,
        subscription: Subscription,
        now: Instant,
        *,
        announced: bool = False,
    ) -> Bookmark:
        """Add a subscription; returns the cut: what follows is newer than this.

        Snapshot or missed rows are pulled with `take`, live rows follow without gap or overlap. A
        name may have one seat in each topic. `announced`: the session is told of it as it runs.

        Raises:
            SessionUnknown, TopicUnknown, LimitReached, BookmarkExpired.
        """
        self._clock(now)
        session = self._roster.find(session_id)
        if session.ended is not None:
            raise SessionUnknown("the session has ended")
        topic = self.topic(subscription.topic)
        assert (name, topic.name) not in session.seats, "a name has one seat in a topic"
        if len(session.seats) >= self._subscriptions_max:
            raise LimitReached(f"a session has at most {self._subscriptions_max} subscriptions")
        seat = seating.seat(name, session, topic, subscription, now)
        session.seats[seat.id] = seat
        self._ledger.begin_at(seat)
        if announced:
            session.outbox.append(Subscribed(name, topic.name))
        if seating.joins_at_once(seat):
            self._usher.join(session, seat, now)
        if seat.opening is not None or announced:
            self._roster.wake(session)
        return topic.bookmark(topic.head)

    def unsubscribe(self, session_id: str, name: str, reason: str = "REQUESTED") -> None:
        """End a subscription in all its topics; what is held for it is dropped, as in AMPS.

        What is queued for it is told before its end is, unless its topic tidies up.

        Raises:
            SessionUnknown, SubscriptionUnknown.
        """
        session = self._roster.find(session_id)
        for seat in self._roster.seats(session, name):
            self._roster.leave(session, seat, reason)
        self._relief.taken(session)

    def change(self, session_id: str, name: str, subscription: Subscription, now: Instant) -> None:
        """Give a subscription new options: another lane of its topic, paused or not.

        They take effect when what is held goes (rule 25). A new filter brings in what the old one
        hid, and with `oof` takes out what it showed.

        Raises:
            SessionUnknown, SubscriptionUnknown.
        """
        self._clock(now)
        session = self._roster.find(session_id)
        for seat in self._roster.seats(session, name):
            if seat.topic.name == subscription.topic:
                self._usher.change(session, seat, subscription, now)

    def publish(self, topic_name: str, frames: Sequence[Frame], now: Instant) -> None:
        """Take in a topic's next messages, numbered without a hole; tombstones remove records.

        Raises:
            TopicUnknown: there is no such topic.
        """
        self._clock(now)
        topic = self.topic(topic_name)
        if not frames:
            return
        for feed, lane in topic.publish(frames, now):
            self._schedule.arm(lane, (feed, lane))
        if topic.definition.expiration_ns is not None:
            self._schedule.arm(topic.expiry, topic)
        for recorder in self.recorders.running:
            recorder.published(topic, frames, now)
        self._relief.grown(topic)

    def advance(self, now: Instant) -> None:
        """Let every lane go that is due; wakes the sessions that have something to take."""
        self._clock(now)
        while (due := self._schedule.pop_due(now)) is not None:
            if isinstance(due, Seat):
                self._usher.release(due, now)
            elif isinstance(due, Topic):
                self._expire(due, now)
            else:
                self._flush(*due, now)
        for recorder in self.recorders.running:
            recorder.advanced(now)

    def next_deadline(self) -> Instant | None:
        """When `advance` wants to be called next; None: not before the next publish."""
        return self._schedule.next_deadline()

    def take(self, session_id: str, bytes_max: int) -> list[Output]:
        """What to send now, about `bytes_max` of payload.

        Call it until it returns nothing: only then will the session be announced again.

        Raises:
            SessionUnknown: it is not there, or its goodbye has been taken.
        """
        session = self._roster.find(session_id)
        outputs = session.take(bytes_max, self._now)
        for seat in list(session.seats.values()):
            if seat.opening is not None:
                self._usher.opened(session, seat, seat.opening, self._now)
        if session.ended is not None and any(isinstance(out, Goodbye) for out in outputs):
            self._roster.forget(session)
        self._relief.taken(session)
        session.ready = bool(outputs)
        return outputs

    def events(self) -> list[Event]:
        """What has happened since the last call, for the shell to act on."""
        return self._roster.events()

    def bring(self, wanted: PastWanted, piece: Sequence[Frame], now: Instant) -> None:
        """Give a replay what it wanted from an archive; nothing: it is not there any more."""
        self._clock(now)
        for session in self._roster.present([wanted.session]):
            self._usher.brought(session, wanted, piece, now)

    def _flush(self, feed: Feed, lane: Lane, now: Instant) -> None:
        feed.settle()
        flushed = lane.flush(now)
        feed.listen(lane)
        self._schedule.arm(lane, (feed, lane))
        if flushed:
            self._flushes += 1
            for member in lane.members.values():
                self._roster.wake_by_id(member.session)
