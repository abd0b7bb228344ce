"""Who sits where: joining a lane, moving to another, leaving."""

from __future__ import annotations

from conflation.carry import Carry
from conflation.duration import Instant
from conflation.lane import Lane
from conflation.list_lane import ListLane
from conflation.session import Seat, Session
from conflation.subscription import Subscription


def join(session: Session, seat: Seat) -> None:
    """Take a place in the lane that the member's subscription names, at its head."""
    member = seat.member
    feed, lane = seat.topic.lane(member.subscription.lane_id)
    seat.feed, seat.lane = feed, lane
    member.position = lane.joining_position()
    member.joined = feed.accepted
    lane.members[session.id, member.name] = member
    if member.subscription.tells_first:
        lane.tell_firsts()
        feed.listen(lane)
    lists = [other.lane for other in session.seats.values() if isinstance(other.lane, ListLane)]
    for shared in lists:
        shared.watch(
            session.limits.messages_max // len(lists), session.limits.bytes_max // len(lists)
        )


def move(session: Session, seat: Seat, subscription: Subscription, now: Instant) -> Carry:
    """Go over to another lane of the same topic with what the old one held.

    Returns what is carried: due at the earlier of the old deadline and `now` plus the new
    interval; at once where every message is asked for, or the key is another.
    """
    assert seat.lane is not None
    assert seat.feed is not None
    old_lane, old_feed, due = seat.lane, seat.feed, seat.lane.deadline
    matched = old_feed.accepted - seat.member.joined
    if seat.carry is not None and seat.carry.deadline is not None:
        due = min(due or seat.carry.deadline, seat.carry.deadline)
        seat.carry.release(old_feed.board, old_lane, seat.member)
    held = [*(seat.carry.rows if seat.carry else ()), *old_lane.catch_up(seat.member)]
    held.sort(key=lambda frame: frame.offset)
    seat.member.subscription, seat.member.cut = subscription, seat.topic.head
    join(session, seat)
    seat.member.joined = seat.feed.accepted - matched
    _quit(session, seat, old_lane)
    interval_ns = subscription.lane_id.interval_ns
    seat.carry = Carry(held, min(due or now, now + interval_ns) if held else None)
    if seat.feed is not old_feed or not interval_ns:
        seat.carry.let_go(held, seat.feed.board.head)
    return seat.carry


def leave(session: Session, seat: Seat) -> None:
    """Give the place up; a lane without members is forgotten."""
    assert seat.lane is not None
    if seat.carry is not None:
        seat.carry.deadline = None
    _quit(session, seat, seat.lane)


def _quit(session: Session, seat: Seat, lane: Lane) -> None:
    del lane.members[session.id, seat.member.name]
    if not lane.members:
        seat.topic.drop_lane(lane)
