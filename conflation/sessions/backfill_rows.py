"""The rows of a backfill, made in steps of what board and journal had at one moment.

Each of these is work in steps (`conflation/steps.py`) of `rows_max` rows or messages, and takes its
cut in the first of them.
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
from tidegate.conflation.steps import RowBuild, Steps, in_pieces, sorted_in_steps
from tidegate.conflation.subscription import LaneId, Subscription, Window
from tidegate.conflation.topics.recorded import conflate_recorded, passing
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.spec import conflation_key


def rows_since(
    topic: Topic, subscription: Subscription, mode: ResumeMode, offset: int, rows_max: int | None
) -> RowBuild:
    """Return what a client is sent that has everything up to an offset."""
    lane_id = subscription.lane_id
    if mode is ResumeMode.REPLAY:
        return replayed(topic, lane_id, offset, rows_max)
    if mode is ResumeMode.CHANGES:
        return RowBuild(_changes(topic, lane_id, offset, rows_max))
    return RowBuild(snapshot_rows(topic, subscription, rows_max))


def replayed(topic: Topic, lane_id: LaneId, offset: int, rows_max: int | None) -> RowBuild:
    """Return what the journal has after an offset as the lane would have sent it then.

    The rows may be those of another subscriber: they are read, never changed.
    """

    def steps() -> Steps[list[Frame]]:
        # Only here: a copy for each of many equal readers would cost as many journals.
        missed = topic.journal.after(offset)
        if lane_id.interval_ns:
            key_spec = topic.definition.key_spec
            return conflate_recorded(missed, lane_id, key_spec, topic.name, rows_max)
        return passing(lane_id, topic.name, missed, rows_max)

    return topic.replays.build(lane_id, offset, topic.head, steps)


def snapshot_rows(
    topic: Topic, subscription: Subscription, rows_max: int | None
) -> Steps[Sequence[Frame]]:
    """Return the records at this moment, in the order asked for.

    Else they are in that of their window, or by age.
    """
    rows = topic.records(subscription.lane_id.feed)
    order, shape = subscription.order, subscription.lane_id.feed.shape
    # A window's rows come in its own order, which is nearly always the one asked for.
    if order is None or (isinstance(shape, Window) and shape.order == order):
        return rows
    token = order.sort_token
    return (yield from sorted_in_steps(rows, lambda row: (token(row.payload), row.key), rows_max))


def merged_since(
    topic: Topic, lane_id: LaneId, offset: int, rows_max: int | None
) -> Steps[Sequence[Frame]]:
    """Return what was missed, as shown, put together as a full queue is.

    All removals are in it: the client may have rows from after its bookmark.
    """
    backlog = Backlog(queue_rules(lane_id, topic.definition))
    missed = yield from passing(lane_id, topic.name, topic.journal.after(offset), rows_max)

    def absorb(piece: Sequence[Frame]) -> tuple[Frame, ...]:
        # As if every key had been there: the client ignores a removal too many, and one too few
        # would leave it a record that is gone.
        backlog.absorb(all_shown(shown_as(lane_id.select), piece), lambda *_: True)
        return ()

    yield from in_pieces(missed, rows_max, absorb)
    return backlog.rows()


def _changes(
    topic: Topic, lane_id: LaneId, offset: int, rows_max: int | None
) -> Steps[Sequence[Frame]]:
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

    def matching(piece: Sequence[Pair]) -> list[Frame]:
        return [
            row
            for _, row in piece
            if not row.removed and (matches is None or matches(row.payload, row.key))
        ]

    rows = yield from in_pieces(changed, rows_max, matching)
    if departed:
        rows = sorted([*rows, *departed], key=_OFFSET)
    if is_counted:
        rows = yield from _counted(rows, missed, rows_max)
    key_spec = lane_id.feed.key_spec
    if key_spec == topic.definition.key_spec or lane_id.interval_ns == 0:
        return rows
    key_of = conflation_key(key_spec)
    keyed = yield from in_pieces(
        rows, rows_max, lambda some: [(key_of(it.payload), it) for it in some]
    )
    return sorted(dict(keyed).values(), key=_OFFSET)


_OFFSET = attrgetter("offset")


def _counted(
    rows: Sequence[Frame], missed: Sequence[Frame], rows_max: int | None
) -> Steps[list[Frame]]:
    """Return rows with the messages that they stand for, as far as the journal has them."""
    counts: dict[str, Receipt] = {}

    def count(piece: Sequence[Frame]) -> tuple[Frame, ...]:
        for frame in piece:
            if not frame.removed:
                now, earlier = receipt_of(frame), counts.get(frame.key)
                counts[frame.key] = now if earlier is None else earlier.then(now)
        return ()

    yield from in_pieces(missed, rows_max, count)
    return [counts[row.key].on(row) if row.key in counts else row for row in rows]
