"""The rows of a backfill, made in steps of what board and journal had at one moment.

Each of these is work in steps (`conflation/steps.py`), and takes its cut in the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from tidegate.conflation.boards.board import Pair
from tidegate.conflation.definition import queue_rules
from tidegate.conflation.frame import Frame, Receipt, receipt_of
from tidegate.conflation.lanes.lane import all_shown, shown_as
from tidegate.conflation.lanes.member import Backlog
from tidegate.conflation.operators.filter import matcher
from tidegate.conflation.outputs import ResumeMode
from tidegate.conflation.steps import (
    RowBuild,
    Steps,
    in_steps,
    items_at_once,
    pause_before,
    sorted_in_steps,
)
from tidegate.conflation.subscription import LaneId, Subscription, Window
from tidegate.conflation.topics.recorded import conflate_recorded, passing
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.spec import conflation_key


def rows_since(topic: Topic, subscription: Subscription, mode: ResumeMode, offset: int) -> RowBuild:
    """Return what a client is sent that has everything up to an offset."""
    lane_id = subscription.lane_id
    if mode is ResumeMode.REPLAY:
        return replayed(topic, lane_id, offset)
    if mode is ResumeMode.CHANGES:
        return RowBuild(_changes(topic, lane_id, offset))
    return RowBuild(snapshot_rows(topic, subscription))


def replayed(topic: Topic, lane_id: LaneId, offset: int) -> RowBuild:
    """Return what the journal has after an offset as the lane would have sent it then.

    The rows may be those of another subscriber: they are read, never changed.
    """

    def steps() -> Steps[list[Frame]]:
        # Only here: a copy for each of many equal readers would cost as many journals.
        missed = topic.journal.after(offset)
        yield from pause_before(missed)
        if lane_id.interval_ns:
            key_spec = topic.definition.key_spec
            return (yield from conflate_recorded(missed, lane_id, key_spec, topic.name))
        return (yield from passing(lane_id, topic.name, missed))

    return topic.replays.build(lane_id, offset, topic.head, steps)


def snapshot_rows(topic: Topic, subscription: Subscription) -> Steps[Sequence[Frame]]:
    """Return the records at this moment, in the order asked for.

    Else they are in that of their window, or by age.
    """
    rows = topic.records(subscription.lane_id.feed)
    order, shape = subscription.order, subscription.lane_id.feed.shape
    # A window's rows come in its own order, which is nearly always the one asked for.
    if order is None or (isinstance(shape, Window) and shape.order == order):
        return rows
    yield from pause_before(rows)
    token = order.sort_token
    size = items_at_once()
    return (yield from sorted_in_steps(rows, lambda row: (token(row.payload), row.key), size))


def merged_since(topic: Topic, lane_id: LaneId, offset: int) -> Steps[Sequence[Frame]]:
    """Return what was missed, as shown, put together as a full queue is.

    All removals are in it: the client may have rows from after its bookmark.
    """
    backlog = Backlog(queue_rules(lane_id, topic.definition))
    missed = topic.journal.after(offset)
    yield from pause_before(missed)
    missed = yield from passing(lane_id, topic.name, missed)

    def absorb(piece: Sequence[Frame]) -> tuple[Frame, ...]:
        # As if every key had been there: the client ignores a removal too many, and one too few
        # would leave it a record that is gone.
        backlog.absorb(all_shown(shown_as(lane_id.select), piece), lambda *_: True)
        return ()

    yield from in_steps(missed, absorb)
    return backlog.rows()


def _changes(topic: Topic, lane_id: LaneId, offset: int) -> Steps[Sequence[Frame]]:
    """Return the newest record of each conflation key changed since, oldest first.

    All removals are in it: the client may have rows from after its bookmark, with keys that came
    and went.
    """
    assert topic.sow is not None
    matches = matcher(lane_id.feed.filter, topic.name)
    is_counted = lane_id.counted and topic.journal.dropped_through <= offset
    # The cut: all that is looked at later is taken from board and journal here.
    changed = topic.sow.board.rows(offset, oof=lane_id.oof)
    departed = topic.sow.board.departed(offset) if lane_id.oof else []
    missed = topic.journal.after(offset) if is_counted else []
    yield from pause_before(changed)

    def matching(piece: Sequence[Pair]) -> list[Frame]:
        return [
            row
            for _, row in piece
            if not row.removed and (matches is None or matches(row.payload, row.key))
        ]

    rows = yield from in_steps(changed, matching, lane_id.feed.record_cost)
    if departed:
        rows = sorted([*rows, *departed], key=_OFFSET)
    if is_counted:
        rows = yield from _counted(rows, missed)
    key_spec = lane_id.feed.key_spec
    if key_spec == topic.definition.key_spec or lane_id.interval_ns == 0:
        return rows
    key_of = conflation_key(key_spec)
    keyed = yield from in_steps(rows, lambda some: [(key_of(it.payload), it) for it in some])
    return sorted(dict(keyed).values(), key=_OFFSET)


_OFFSET = attrgetter("offset")


def _counted(rows: Sequence[Frame], missed: Sequence[Frame]) -> Steps[list[Frame]]:
    """Return rows with the messages that they stand for, as far as the journal has them."""
    counts: dict[str, Receipt] = {}

    def count(piece: Sequence[Frame]) -> tuple[Frame, ...]:
        for frame in piece:
            if not frame.removed:
                now, earlier = receipt_of(frame), counts.get(frame.key)
                counts[frame.key] = now if earlier is None else earlier.then(now)
        return ()

    yield from in_steps(missed, count)
    return [counts[row.key].on(row) if row.key in counts else row for row in rows]
