"""Relief: queues over their limit are conflated whole, or their sessions close (CONTRACT 6)."""

from __future__ import annotations

from conflation.definition import QueuePolicy
from conflation.lanes.list_lane import ListLane
from conflation.outputs import CloseReason, QueueCrossed
from conflation.sessions.roster import Roster
from conflation.sessions.session import HALF_PERCENT, Session
from conflation.topics.topic import Topic

FULL_PERCENT = 100


class Relief:
    """Looks at a queue when it may have reached the next level that matters, and at no other.

    What a session may still take before that is shared among its seats, each of which has an
    alarm at the feed that it reads from: no seat's queue grows faster than its feed.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._long: dict[str, Session] = {}

    def grown(self, topic: Topic) -> None:
        """A topic has new messages: full queues are relieved, or their sessions closed."""
        places = [place for feed in topic.feeds.values() for place in feed.overgrown()]
        for session_id in dict.fromkeys(place[0] for place in places):
            self._relieve(self._roster.find(session_id))

    def arm(self, session: Session) -> None:
        """Set a session's alarms anew: its seats or its limits have changed."""
        seats = [seat for seat in session.seats.values() if seat.queues]
        messages, size = session.limits.room(*session.fills())
        for seat in seats:
            feed = seat.feed
            assert feed is not None
            feed.alarms.set(
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

    def step(self) -> bool:
        """Conflate a part of the longest queue; False: there is none to conflate."""
        return False

    def taken(self, session: Session) -> None:
        """A queue has become shorter."""
        if session.is_crossed:
            self._note_level(session)

    def crowded(self, topic: Topic) -> set[str]:
        """Sessions whose queue, filled by this topic among others, is more than half full."""
        return {
            session.id
            for session in self._long.values()
            if session.is_above(HALF_PERCENT)
            and any(seat.topic is topic and seat.queues for seat in session.seats.values())
        }

    def _relieve(self, session: Session) -> None:
        """Steps 2 and 3 of the full queue; step 1 is the shell's, between its slices."""
        self._note_level(session)
        if session.is_above(FULL_PERCENT) and session.conflated:
            _conflate(session)
        if session.is_above(FULL_PERCENT):
            self._roster.close(session, CloseReason.QUEUE_LIMIT)
        self.arm(session)

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
        else:
            self._long.pop(session.id, None)

    def _cross(self, session: Session, messages: int, size: int, *, upper: bool) -> None:
        session.is_crossed = upper
        self._roster.tell(QueueCrossed(session.id, upper, messages, size))


def _conflate(session: Session) -> None:
    """Step 2 of the full queue: everything that its topics' policy lets be conflated."""
    for seat in session.seats.values():
        conflates = seat.topic.definition.policy is QueuePolicy.CONFLATE
        if conflates and isinstance(seat.lane, ListLane):
            seat.lane.give_up(seat.member)
