"""Going over to other options while messages come: to another lane, or to another board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.conflation.boards.board import Pair
from tidegate.conflation.frame import Frame, RemovalReason, Row, Tombstone
from tidegate.conflation.lanes.accumulate import combines, lifted
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.interval import IntervalLane
from tidegate.conflation.lanes.lane import Lane, Member, all_shown, shown_as
from tidegate.conflation.sessions.rows import CatchUpRows, collapsed
from tidegate.conflation.sessions.session import PendingChange, Session, Subscriber
from tidegate.conflation.sessions.subscriber import join, lane_id_of, quit_lane
from tidegate.conflation.subscription import Subscription
from tidegate.keys.text.duration import Instant

View = Mapping[str, Frame]
"""What a client holds that has everything: by the key that it knows a row by, as shown."""


def change(
    session: Session, seat: Subscriber, subscription: Subscription, now: Instant
) -> PendingChange | None:
    """Note what a seat goes over to, and when; None if its lane stays the same.

    What is held goes at the earlier of its own deadline and `now` plus the new interval, and the
    seat with it; until then the old options hold. At once where nothing is held, where every
    message is asked for, and to another board. A seat without a lane goes once it has one.
    """
    before, lane = seat.transfer, seat.lane
    held_until = None if lane is None else lane.deadline
    if before is not None:
        held_until, before.deadline = before.deadline, None
    seat.paused, seat.transfer = subscription.paused, None
    if lane is not None and lane.id == lane_id_of(session, seat.topic, subscription):
        seat.member.subscription = subscription
        return None
    interval_ns = subscription.lane_id.interval_ns
    waits = lane is not None and lane.id.feed == subscription.lane_id.feed and interval_ns
    due = min(held_until, now + interval_ns) if waits and held_until is not None else now
    seat.transfer = PendingChange(subscription, due)
    return seat.transfer


def apply_change(session: Session, seat: Subscriber) -> None:
    """Leave the old lane with all that it has for the member, held or not, and join the new one.

    From board to board of the same view the member's position is all that there is to keep.
    """
    member, old, old_feed, transfer = seat.member, seat.lane, seat.feed, seat.transfer
    assert old is not None
    assert old_feed is not None
    assert transfer is not None
    seat.transfer, transfer.deadline = None, None
    if old.id == lane_id_of(session, seat.topic, transfer.subscription):
        member.subscription = transfer.subscription  # a replay has just joined it
        return
    old_feed.settle()
    since, cut, joined = member.position, member.cut, member.joined - old_feed.accepted
    passed = member.passed - seat.topic.filtered_out(old_feed)
    pending, unreported = old.left_behind(member)
    backlog = member.backlog
    member.backlog = None
    member.subscription = transfer.subscription
    member.conflated_to = member.released = 0
    member.owed.clear()
    member.remember()
    join(session, seat)
    assert seat.lane is not None
    assert seat.feed is not None
    member.joined = seat.feed.accepted + joined
    member.passed = seat.topic.filtered_out(seat.feed) + passed
    at_a_place = seat.owed is None and backlog is None
    if at_a_place and isinstance(seat.lane, IntervalLane) and _asks_the_same(old, seat.lane):
        member.position, member.cut, member.released = since, cut, seat.lane.board.head
    else:
        member.catch_up = None
        for row_key, messages in unreported:  # older than what is pending of their keys
            member.miss(row_key, messages)
        _owe(seat, old, pending)
        if not _shows_the_same(old, seat.lane):
            member.drop_delta_base()
            _owe(seat, seat.lane, _changed(_view(old), seat.lane, member))
    if isinstance(seat.lane, IntervalLane):
        member.unreported.clear()  # a plain interval counts nothing
    quit_lane(seat, old)


def _asks_the_same(old: Lane, new: IntervalLane) -> bool:
    """Whether a position in the one is a position in the other."""
    return _shows_the_same(old, new) and isinstance(old, IntervalLane | EveryMessageLane)


def _shows_the_same(old: Lane, new: Lane) -> bool:
    return (old.id.feed, old.id.select) == (new.id.feed, new.id.select)


def _view(lane: Lane) -> View:
    shown = all_shown(shown_as(lane.id.select), lane.board.live())
    return {frame.key: frame for frame in shown}


def _changed(before: View, lane: Lane, member: Member) -> list[Pair]:
    """What a client with the old view must be told to have the new one; no messages, these."""
    after = _view(lane)
    told: list[Frame] = []
    if lane.id.oof:
        told += [_out(row) for row_key, row in before.items() if row_key not in after]
    for row_key, row in after.items():
        known = before.get(row_key)
        if member.subscription.command.queries and (known is None or known.payload != row.payload):
            told.append(_in(row))
    return [(row.key, row) for row in told]


def _out(row: Frame) -> Tombstone:
    return Tombstone(row.offset, row.payload, row.key, row.timestamp_ms, reason=RemovalReason.MATCH)


def _in(row: Frame) -> Row:
    return Row(
        row.offset, row.payload, row.key, row.timestamp_ms,
        first=row.offset, first_ms=row.timestamp_ms, messages=0,
    )  # fmt: skip


def _owe(seat: Subscriber, lane: Lane, rows: Sequence[Pair]) -> None:
    """After what is owed already; put together unless every message is asked for."""
    spec, new = lane.id.feed.key_spec, seat.lane
    left = [
        (f"{spec} {board_key}", known)
        for board_key, row in rows
        for known in seat.member.as_known((row,))
    ]
    told: Sequence[Pair] = [*(() if seat.owed is None else seat.owed.rest()), *left]
    if new is not None and not new.id.lists:
        if lane.id.lists and combines(new.id):
            told = [(board_key, lifted(row, new.id)) for board_key, row in told]
        told = collapsed(told)
    seat.owed = CatchUpRows(told, seat.topic.head) if told else None
