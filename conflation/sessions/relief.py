"""Relief: queues over their limit are conflated whole, or their sessions close (CONTRACT 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from conflation.definition import QueuePolicy
from conflation.lanes.lane import Lane
from conflation.lanes.list_lane import ListLane
from conflation.sessions.session import Session
from conflation.topics.topic import Topic


class Relief:
    """Looks after the lists that have grown beyond a member's share of its session's limits.

    A session over its limit has one list beyond its share, but it may be another that has just
    grown: a long list is looked at with every publish until it is short again.
    """

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._watched: dict[ListLane, None] = {}

    def watch(self, lanes: Iterable[Lane | None]) -> None:
        """These have grown, or a member's share of its session's limits has shrunk."""
        self._watched.update((lane, None) for lane in lanes if isinstance(lane, ListLane))

    def overflowed(self) -> Iterator[Session]:
        """Conflates every queue that is over its limit; the sessions for which it is in vain."""
        for lane in list(self._watched):
            if not (lane.members and lane.may_overflow()):
                del self._watched[lane]
                continue
            for session_id in dict.fromkeys(member.session for member in lane.members.values()):
                session = self._sessions[session_id]
                if session.over_limit():
                    _conflate(session)
                    if session.over_limit():
                        yield session

    def crowded(self, topic: Topic) -> set[str]:
        """Sessions whose queue, filled by this topic among others, is more than half full."""
        lanes = [lane for feed in topic.feeds.values() for lane in feed.lanes.values()]
        behind = [lane for lane in lanes if isinstance(lane, ListLane) and lane.is_long()]
        members = {member.session for lane in behind for member in lane.members.values()}
        return {session_id for session_id in members if self._sessions[session_id].half_full()}


def _conflate(session: Session) -> None:
    """Step 2 of the full queue: everything that its topics' policy lets be conflated."""
    for seat in session.seats.values():
        conflates = seat.topic.definition.policy is QueuePolicy.CONFLATE
        if conflates and isinstance(seat.lane, ListLane):
            seat.lane.give_up(seat.member)
