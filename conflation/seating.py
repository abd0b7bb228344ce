"""Who sits where: joining a lane, moving to another, leaving."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.beginning import begin
from conflation.board import Board
from conflation.duration import Instant
from conflation.frame import Frame, Gone, Tombstone
from conflation.lane import Lane, all_shown, shown_as
from conflation.list_lane import ListLane
from conflation.member import Member
from conflation.owed import Carry, Owed, newest_of_each
from conflation.session import Seat, Session
from conflation.subscription import Command, Subscription
from conflation.topic import Topic


def seat(
    name: str, session: Session, topic: Topic, subscription: Subscription, now: Instant
) -> Seat:
    """A new seat with what it begins with; it is in no lane yet.

    Raises:
        BookmarkExpired: see `begin`.
    """
    opening = begin(name, topic, subscription, session.limits, now)
    member = Member(name, session.id, subscription, cut=topic.head)
    lane_id = subscription.lane_id
    if opening is None and (lane_id.oof or lane_id.delta):
        member.sent = set()
    return Seat(member, topic, opening, paused=subscription.paused)


def joins_at_once(seat: Seat) -> bool:
    """Whether live rows are collected from now on: not for a `sow`, nor during a long replay."""
    subscription = seat.member.subscription
    is_replay = subscription.replay is not None and subscription.resume is None
    return subscription.command is not Command.SOW and not is_replay


def join(session: Session, seat: Seat) -> None:
    """Take a place in the lane that the member's subscription names, at its head."""
    member = seat.member
    feed, lane = seat.topic.lane(member.subscription.lane_id)
    seat.feed, seat.lane = feed, lane
    lane.join(member)
    member.cut = seat.topic.head
    member.joined = feed.accepted
    lane.members[member.place] = member
    lists = [other.lane for other in session.seats.values() if isinstance(other.lane, ListLane)]
    for shared in lists:
        shared.watch(
            session.limits.messages_max // len(lists), session.limits.bytes_max // len(lists)
        )


def move(session: Session, seat: Seat, subscription: Subscription, now: Instant) -> None:
    """Go over to another lane of the same topic with what the old one held.

    Of the same board it is due at the earlier of the old deadline and `now` plus the new
    interval. Where every message is asked for, or the board is another, it is owed at once,
    and then what another filter or shape brings in or takes out.
    """
    assert seat.lane is not None
    assert seat.feed is not None
    old_lane, old_feed, due = seat.lane, seat.feed, _due(seat)
    matched = old_feed.accepted - seat.member.joined
    held = old_lane.pending(seat.member)
    if seat.carry is not None:
        held = [(row.key, row) for row in seat.carry.together(held)]
    seat.carry = None
    del old_lane.members[seat.member.place]
    seat.member.subscription = subscription
    seat.member.conflated_to = 0
    seat.member.owed.clear()
    join(session, seat)
    assert seat.feed is not None
    seat.member.joined = seat.feed.accepted - matched
    interval_ns = subscription.lane_id.interval_ns
    if seat.feed is old_feed and interval_ns:
        seat.carry = Carry(held, min(due or now, now + interval_ns)) if held else None
    else:
        rows = [row for _, row in held]
        changed = [] if seat.feed is old_feed else _changed_focus(seat, old_feed.board)
        _owe(seat, rows, changed)
    if not old_lane.members:
        seat.topic.drop_lane(old_lane)


def release(seat: Seat) -> bool:
    """A move's deadline has come; False if nothing is owed after all."""
    assert seat.carry is not None
    assert seat.lane is not None
    rows = seat.carry.together(seat.lane.pending(seat.member))
    seat.carry = None
    seat.lane.join(seat.member)
    seat.member.cut = seat.topic.head
    _owe(seat, rows, [])
    return bool(rows)


def leave(seat: Seat) -> None:
    """Give the place up; a lane without members is forgotten."""
    if seat.carry is not None:
        seat.carry.deadline = None
    if seat.opening is not None:
        seat.opening.deadline = None
    if seat.lane is not None:
        _quit(seat, seat.lane)


def _due(seat: Seat) -> Instant | None:
    carried = None if seat.carry is None else seat.carry.deadline
    held = None if seat.lane is None else seat.lane.deadline
    return min((due for due in (carried, held) if due is not None), default=None)


def _owe(seat: Seat, rows: Sequence[Frame], changed: Sequence[Frame]) -> None:
    """With what is owed already; where an interval was asked for, the newest of each key."""
    rest = () if seat.owed is None else seat.owed.rest()
    counted = [*(row for row, counts in rest if counts), *rows]
    if seat.member.subscription.lane_id.interval_ns:
        counted = [row for _, row in newest_of_each((row.key, row) for row in counted)]
    others = [*(row for row, counts in rest if not counts), *changed]
    told = [(known, True) for row in counted for known in seat.member.as_known((row,))]
    told += [(known, False) for row in others for known in seat.member.as_known((row,))]
    seat.owed = Owed(told, seat.topic.head) if told else None


def _changed_focus(seat: Seat, before: Board) -> list[Frame]:
    """What a client that holds the old board's rows must be told to hold the new one's."""
    assert seat.feed is not None
    lane_id, after = seat.member.subscription.lane_id, seat.feed.board
    told: list[Frame] = []
    if lane_id.oof:
        told += [_out(row) for row in before.live() if after.get(row.key) is None]
    if seat.member.subscription.command.queries:
        for row in after.live():
            known = before.get(row.key)
            if known is None or known.payload != row.payload:
                told.append(row)
    return all_shown(shown_as(lane_id.select), told)


def _out(row: Frame) -> Tombstone:
    return Tombstone(row.offset, row.payload, row.key, row.timestamp_ms, reason=Gone.MATCH)


def _quit(seat: Seat, lane: Lane) -> None:
    del lane.members[seat.member.place]
    if not lane.members:
        seat.topic.drop_lane(lane)
