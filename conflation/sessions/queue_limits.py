"""Relief: queues over their limit are conflated whole, or their sessions close (CONTRACT 6)."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.conflation.definition import QueuePolicy
from tidegate.conflation.outputs import CloseReason, QueueCrossed
from tidegate.conflation.sessions.accounting import Reliefs
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.session import HALF_PERCENT, QueueLimits, Session, Subscriber
from tidegate.conflation.topics.topic import Topic

FULL_PERCENT = 100
ROWS_MAX = 1_000
WORTH_ONE_IN = 8
"""Of a queue at least this part must be new before it is conflated again in idle time."""


class QueueLimiter:
    """Looks at a queue when it may have reached the next level that matters, and at no other.

    What a session may still take before that is shared among its seats, each of which has an
    alarm at the feed that it reads from: no seat's queue grows faster than its feed.
    """

    def __init__(self, roster: SessionRegistry) -> None:
        self._roster = roster
        self._long: dict[str, Session] = {}
        self._forced = self._background = self._unsubscribed = 0

    def grown(self, topic: Topic) -> None:
        """A topic has new messages: full queues are relieved, or their sessions closed."""
        places = [place for feed in topic.feeds.values() for place in feed.overgrown()]
        for session_id in dict.fromkeys(place[0] for place in places):
            self._relieve(self._roster.find(session_id))

    def arm(self, session: Session) -> None:
        """Set a session's alarms anew: its seats or its limits have changed."""
        seats = [seat for seat in session.seats.values() if seat.queues]
        queued, queued_bytes = session.queued()
        messages, size = session.limits.room(queued, queued_bytes + session.unsent_bytes)
        for seat in seats:
            feed = seat.feed
            assert feed is not None
            feed.watermarks.set(
                seat.member.place,
                feed.grown_messages + messages // len(seats),
                feed.grown_bytes + size // len(seats),
            )
        self._note_level(session)

    def look(self, session: Session) -> None:
        """Its limits are others now."""
        self._relieve(session)

    def note_unsent(self, session: Session, unsent_bytes: int) -> None:
        """What its socket holds; more of it leaves less room for the queue."""
        rises = unsent_bytes > session.unsent_bytes
        session.unsent_bytes = unsent_bytes
        if rises:
            self.arm(session)
        else:
            self.taken(session)

    @property
    def has_long(self) -> bool:
        """Whether there may be a queue above its lower threshold."""
        return bool(self._long)

    def step(self) -> bool:
        """Conflate a part of the longest queue above its lower threshold; False: there is none."""
        self._forget_short()
        long = [one for one in self._long.values() if one.conflated and _is_long(one)]
        for session in sorted(long, key=_fullness, reverse=True):
            seat = max(_worthwhile(session), key=Subscriber.unconflated, default=None)
            if seat is not None:
                seat.conflate(ROWS_MAX)
                self._background += 1
                self.arm(session)
                return True
        return False

    def counts(self) -> Reliefs:
        """What became of queues so far."""
        return Reliefs(self._forced, self._background, self._unsubscribed)

    def forget(self, session: Session) -> None:
        """It has ended."""
        self._long.pop(session.id, None)

    def taken(self, session: Session) -> None:
        """A queue has become shorter."""
        if session.is_crossed and session.ended is None:
            self._note_level(session)

    def over_half_full(self, topic: Topic) -> set[str]:
        """Sessions whose queue, filled by this topic among others, is more than half full."""
        self._forget_short()
        return {
            session.id
            for session in self._long.values()
            if session.is_above(HALF_PERCENT)
            and any(seat.topic is topic and seat.queues for seat in session.seats.values())
        }

    def limits_at(self, topic: Topic, session_ids: Iterable[str]) -> list[QueueLimits]:
        """The limits of those that queue what this topic brings."""
        return [
            session.limits
            for session in self._roster.present(session_ids)
            if any(seat.topic is topic and seat.queues for seat in session.seats.values())
        ]

    def _forget_short(self) -> None:
        """Queues that have drained since they were looked at."""
        for session in list(self._long.values()):
            level = min(HALF_PERCENT, session.limits.lower_percent)
            if session.ended is not None or not session.is_above(level):
                self.forget(session)

    def _relieve(self, session: Session) -> None:
        """Steps 2 and 3 of the full queue; step 1 is the shell's, between its slices."""
        self._note_level(session)
        if session.is_above(FULL_PERCENT) and session.conflated:
            self._conflate(session)
        if session.is_above(FULL_PERCENT):
            self._roster.close(session, CloseReason.QUEUE_LIMIT)
        if session.ended is None:
            self.arm(session)
        else:
            self.forget(session)

    def _conflate(self, session: Session) -> None:
        """The whole queue, topic by topic, as far as the topics' policies go."""
        self._forced += 1
        for left in session.partings():
            left.conflate_idle()
        queued = [seat for seat in session.seats.values() if seat.queued()[0]]
        for seat in queued:
            if seat.topic.definition.policy is QueuePolicy.CONFLATE:
                seat.conflate()
        crowding = {seat.topic for seat in queued if _unsubscribes(seat)}
        for seat in [seat for seat in session.seats.values() if seat.topic in crowding]:
            self._unsubscribed += 1
            self._roster.leave(session, seat, "BACK_PRESSURE")

    def _note_level(self, session: Session) -> None:
        """Tell of thresholds that were crossed, remember who is long."""
        messages, size = session.fills()
        limits = session.limits
        if not session.is_crossed and limits.is_above(limits.upper_percent, messages, size):
            self._cross(session, messages, size, upper=True)
        elif session.is_crossed and not limits.is_above(limits.lower_percent, messages, size):
            self._cross(session, messages, size, upper=False)
        if limits.is_above(min(HALF_PERCENT, limits.lower_percent), messages, size):
            self._long[session.id] = session

    def _cross(self, session: Session, messages: int, size: int, *, upper: bool) -> None:
        session.is_crossed = upper
        self._roster.tell(QueueCrossed(session.id, upper, messages, size))


def _unsubscribes(seat: Subscriber) -> bool:
    return seat.topic.definition.policy is QueuePolicy.UNSUBSCRIBE


def _is_long(session: Session) -> bool:
    return session.is_above(session.limits.lower_percent)


def _fullness(session: Session) -> float:
    """The share of a session's limits that is taken."""
    messages, size = session.fills()
    limits = session.limits
    return max(messages / limits.messages_max, size / limits.bytes_max)


def _worthwhile(session: Session) -> list[Subscriber]:
    """Queues that may be conflated, and of which enough was not yet."""
    return [
        seat
        for seat in session.seats.values()
        if seat.topic.definition.policy is QueuePolicy.CONFLATE
        and seat.unconflated() * WORTH_ONE_IN >= max(1, seat.queued()[0])
    ]
