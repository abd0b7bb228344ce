"""Changes of options: a subscriber moves to another lane with all that it was not sent yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from tidegate.conflation.boards.board import Pair
from tidegate.conflation.frame import Frame, RemovalReason, Row, Tombstone
from tidegate.conflation.lanes.accumulate import combines, lifted
from tidegate.conflation.lanes.lane import Lane, Undelivered, shown_as
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.operators.filter import matcher
from tidegate.conflation.sessions.rows import RowCursor, collapsing
from tidegate.conflation.sessions.session import Session
from tidegate.conflation.sessions.subscriber import PendingChange, Subscriber
from tidegate.conflation.steps import RowBuild, Steps, in_pieces, in_steps, items_at_once
from tidegate.conflation.subscription import LaneId, Subscription
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import Instant


def plan_change(
    session: Session, subscriber: Subscriber, subscription: Subscription, now: Instant
) -> PendingChange | None:
    """Plan the change to other options; return None if the lane stays the same.

    It takes effect, and held rows are sent, at the earlier of their deadline and `now` plus the new
    interval; until then the old options hold (rule change-1). It takes effect at once if nothing is
    held, if every message is asked for, and if the board changes. A subscriber without a lane
    changes once it has one.
    """
    before, lane = subscriber.change, subscriber.lane
    held_until = None if lane is None else lane.deadline
    if before is not None:
        # A second change must not delay the rows that the first one has promised.
        held_until, before.deadline = before.deadline, None
    subscriber.paused, subscriber.change = subscription.paused, None
    lane_id = subscriber.lane_id(subscription, conflated=session.conflated)
    if lane is not None and lane.id == lane_id:
        subscriber.member.subscription = subscription
        return None
    interval_ns = subscription.lane_id.interval_ns
    waits = lane is not None and lane.id.feed == subscription.lane_id.feed and interval_ns
    due = min(held_until, now + interval_ns) if waits and held_until is not None else now
    subscriber.change = PendingChange(subscription, due)
    return subscriber.change


def apply_change(session: Session, subscriber: Subscriber) -> None:
    """Move to the new lane, with all rows that the old one has for the member, held or not.

    If both lanes read the same board, the member keeps its position and nothing else. Otherwise a
    catch-up is made in steps, the first of them now: the rows of the old lane, and those that
    another filter shows and hides.
    """
    member, old, old_feed = subscriber.member, subscriber.lane, subscriber.feed
    change = subscriber.change
    assert old is not None
    assert old_feed is not None
    assert change is not None
    subscriber.change, change.deadline = None, None
    if old.id == subscriber.lane_id(change.subscription, conflated=session.conflated):
        member.subscription = change.subscription  # a replay has just joined it
        return
    old_feed.materialize()  # deferred rows are not pending yet, and would be lost
    since, cut, joined = member.position, member.cut, member.joined - old_feed.accepted
    passed = member.passed - subscriber.topic.filtered_out(old_feed)
    left = old.undelivered(member)
    backlog = member.backlog
    member.backlog = None
    member.subscription = change.subscription
    # Positions of the old lane, and what refers to them, mean nothing in the new one.
    member.conflated_to = member.released = 0
    member.owed = None
    member.track_sent()
    # Join first: the lanes may share a board, which a topic drops once it has no lanes.
    subscriber.join(conflated=session.conflated)
    new, feed = subscriber.lane, subscriber.feed
    assert new is not None
    assert feed is not None
    # Its counts continue: matched and filtered are differences to these.
    member.joined = feed.accepted + joined
    member.passed = subscriber.topic.filtered_out(feed) + passed
    at_a_place = subscriber.catch_up is None and backlog is None
    if at_a_place and new.is_stateless and old.counts_offsets and _shows_the_same(old, new):
        # What the old lane held is released to it, so that it does not wait for the new lane.
        member.position, member.cut, member.released = since, cut, new.board.head
    else:
        member.catch_up = None
        earlier = [] if subscriber.catch_up is None else subscriber.catch_up.pairs_left
        keys: list[str] = []
        rows = _transition(subscriber, old, earlier, left, keys)
        cursor = RowCursor.catch_up((), subscriber.topic.head)
        cursor.begin(RowBuild(rows, keys, lambda: None if earlier else left.counted()))
        subscriber.catch_up = cursor if cursor.is_building or cursor.rows else None
    subscriber.leave_lane(old)


def _shows_the_same(old: Lane, new: Lane) -> bool:
    return (old.id.feed, old.id.select) == (new.id.feed, new.id.select)


def _transition(
    subscriber: Subscriber, old: Lane, earlier: list[Pair], left: Undelivered, keys: list[str]
) -> Steps[Sequence[Frame]]:
    """Return the rows between two lanes, after those of `earlier`; fill in `keys`."""
    member, topic, new = subscriber.member, subscriber.topic, subscriber.lane
    assert new is not None
    same = _shows_the_same(old, new)
    # The cut: rows of later messages come from the new lane.
    views = None if same else _views(topic, old, new)
    rows, unreported = yield from left.steps
    for row_key, messages in unreported:  # older than what is pending of their keys
        member.add_unreported(row_key, messages)
    pairs = yield from _put_after(subscriber, earlier, old, rows, old.id.feed.key_spec)
    if views is not None:
        # With other rows or fields the client does not have the base of the next delta.
        member.drop_delta_base()
        changed = yield from _changed(*views, member)
        pairs = yield from _put_after(subscriber, pairs, new, changed, views[1].key_spec)
    if new.is_stateless:
        member.unreported = None  # it counts nothing
    keys += [key for key, _ in pairs]
    return [row for _, row in pairs]


# --- What another filter, or another selection of fields, shows and hides

VIEWED_AT_ONCE: Final = 50_000  # frames without a selection; a million of them take 1.5 s


class RecordView(NamedTuple):
    """What a lane shows of its topic, as of the moment at which this is taken.

    Attributes:
        lane_id: has the filter and the fields.
        frames: of the lane's board, or all records.
        matches: tells which of these the lane shows; None: all.
        key_spec: of the keys of rows.
    """

    lane_id: LaneId
    frames: list[Frame]
    matches: Callable[[bytes, str], bool] | None
    key_spec: KeySpec

    @classmethod
    def of_board(cls, lane: Lane) -> Self:
        """Take what is on the board; only references are copied."""
        return cls(lane.id, lane.board.frames(), None, lane.id.feed.key_spec)

    @classmethod
    def of_records(cls, topic: Topic, lane: Lane) -> Self:
        """Take the records that the filter matches; only references are copied."""
        assert topic.sow is not None, "without records no key is another one"
        matches = matcher(lane.id.feed.filter, topic.name)
        return cls(lane.id, topic.sow.board.frames(), matches, topic.definition.key_spec)


def _views(topic: Topic, old: Lane, new: Lane) -> tuple[RecordView, RecordView]:
    """Return what each of two lanes shows.

    A board of another key than that of the records begins empty, and has one record for each of its
    own keys, so that the records themselves say what its lane shows.
    """
    if not _has_other_key(topic, new):
        return RecordView.of_board(old), RecordView.of_board(new)
    of_old = RecordView.of_board(old)
    if _has_other_key(topic, old):
        of_old = RecordView.of_records(topic, old)
    return of_old, RecordView.of_records(topic, new)


def _has_other_key(topic: Topic, lane: Lane) -> bool:
    is_keyed = topic.sow is not None and bool(topic.definition.key_spec)
    return is_keyed and topic.of_records(lane.id.feed) != lane.id.feed


def _changed(old: RecordView, new: RecordView, member: Member) -> Steps[list[Pair]]:
    """Return the rows that change a client's old view to the new one; they are no messages."""
    shown_before = yield from _view(old)
    shown_after = yield from _view(new)

    def hidden(piece: Sequence[Frame]) -> list[Frame]:
        return [
            _out(shown_before[row.key])
            for row in piece
            if row.key not in shown_after and row.key in shown_before
        ]

    def news(piece: Sequence[Frame]) -> list[Frame]:
        rows: list[Frame] = []
        for frame in piece:
            row, known = shown_after.get(frame.key), shown_before.get(frame.key)
            if row is not None and (known is None or known.payload != row.payload):
                rows.append(_in(row))
        return rows

    rows: list[Frame] = []
    # Without `oof` no removals are sent: rows that the new filter hides become stale.
    if new.lane_id.oof:
        rows += yield from in_steps(old.frames, hidden)
    if member.subscription.command.queries:
        rows += yield from in_steps(new.frames, news)
    return [(row.key, row) for row in rows]


def _view(of: RecordView) -> Steps[dict[str, Frame]]:
    """Return the rows that a client has if it was sent everything, by row key."""
    shown, matches = shown_as(of.lane_id.select), of.matches
    view: dict[str, Frame] = {}

    def add(piece: Sequence[Frame]) -> tuple[()]:
        live = [frame for frame in piece if not frame.removed]
        if matches is not None:
            live = [frame for frame in live if matches(frame.payload, frame.key)]
        view.update((row.key, row) for row in (live if shown is None else map(shown, live)))
        return ()

    # A selection reads each payload, as a filter does.
    cost = 1 if matches is None else of.lane_id.feed.record_cost
    size = VIEWED_AT_ONCE if shown is None and matches is None else items_at_once(cost)
    yield from in_pieces(of.frames, size, add)
    return view


def _out(row: Frame) -> Tombstone:
    return Tombstone(row.offset, row.payload, row.key, row.timestamp_ms, reason=RemovalReason.MATCH)


def _in(row: Frame) -> Row:
    return Row(
        row.offset, row.payload, row.key, row.timestamp_ms,
        first=row.offset, first_ms=row.timestamp_ms, messages=0,
    )  # fmt: skip


def _put_after(
    subscriber: Subscriber, earlier: list[Pair], lane: Lane, rows: Sequence[Pair], spec: KeySpec
) -> Steps[list[Pair]]:
    """Return the rows of a catch-up followed by these rows of a lane, with keys of a specification.

    Rows of one key are put together if the new lane allows it.
    """
    # Two boards may use one text for different keys, so the key includes the specification.
    member, new, keys_of = subscriber.member, subscriber.lane, str(spec)

    def known(piece: Sequence[Pair]) -> list[Pair]:
        return [
            (f"{keys_of} {board_key}", row)
            for board_key, shared in piece
            for row in member.personalize((shared,))
        ]

    pairs = earlier + (yield from in_steps(rows, known))
    if new is None or new.id.lists:
        return pairs
    # Rows of a list are single messages; a lane that combines has them in its own form.
    if lane.id.lists and combines(new.id):
        pairs = [(board_key, lifted(row, new.id)) for board_key, row in pairs]
    return (yield from collapsing(pairs))
