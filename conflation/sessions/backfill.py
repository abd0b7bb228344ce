"""The backfill of a new subscription: a snapshot, rows missed since a bookmark, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.conflation.definition import CONFLATING, queue_rules
from tidegate.conflation.frame import Frame, Receipt, receipt_of
from tidegate.conflation.lanes.lane import all_shown, shown_as
from tidegate.conflation.lanes.member import Backlog
from tidegate.conflation.operators.filter import matcher
from tidegate.conflation.outputs import Resumed, ResumeMode
from tidegate.conflation.sessions.rows import Pacing, RowCursor
from tidegate.conflation.sessions.session import FULL_PERCENT, QueueLimits
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.subscription import LaneId, NotFound, Replay, Subscription, Window
from tidegate.conflation.topics.recorded import HistoryReplay, conflate_recorded, passing
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.spec import conflation_key
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

# --- By which of three ways a bookmark is continued, and with which rows (CONTRACT 4.2)


def resume_mode(topic: Topic, lane_id: LaneId, bookmark: Bookmark, *, too_long: bool) -> ResumeMode:
    """Return the first way that fits; `too_long`: a replay would be over the session's limits.

    Changes cost the keys that changed, a replay the messages, a snapshot all records.
    """
    if bookmark.epoch != topic.epoch or bookmark.offset > topic.head or _needs_whole(lane_id):
        return ResumeMode.SNAPSHOT
    by_record = _board_reaches(topic, bookmark)
    if lane_id.interval_ns and by_record and _is_newest_of_records(topic, lane_id):
        return ResumeMode.CHANGES
    if not topic.reaches(bookmark):
        return ResumeMode.SNAPSHOT
    conflates = topic.definition.policy in CONFLATING and bool(topic.definition.key_spec)
    if not lane_id.interval_ns and too_long and conflates and by_record:
        return ResumeMode.REPLAY if _merges(topic, lane_id) else ResumeMode.CHANGES
    return ResumeMode.REPLAY


def overflows(
    topic: Topic, subscription: Subscription, limits: QueueLimits, *, conflated: bool
) -> bool:
    """Return whether all messages since a bookmark are too many, and cannot be conflated.

    An interval queues nothing. `conflated`: the session has queue policies.
    """
    bookmark, lane_id = subscription.resume, subscription.lane_id
    if bookmark is None or lane_id.interval_ns or not topic.journal_reaches(bookmark):
        return False  # an archive is read as the socket drains, so nothing of it waits in a queue
    too_long = limits.is_above(FULL_PERCENT, *topic.journal.backlog(bookmark.offset))
    if conflated and is_merged(topic, lane_id, bookmark, too_long=too_long):
        return False
    mode = resume_mode(topic, lane_id, bookmark, too_long=too_long and conflated)
    return too_long and mode is ResumeMode.REPLAY


def is_merged(topic: Topic, lane_id: LaneId, bookmark: Bookmark, *, too_long: bool) -> bool:
    """Return whether what was missed is merged by the topic's rules, as its queue would be.

    The newest values alone would lose what the older ones add to a sum.
    """
    has_records = bool(topic.definition.key_spec) and _board_reaches(topic, bookmark)
    conflates = too_long and has_records and topic.definition.policy in CONFLATING
    return conflates and topic.journal_reaches(bookmark) and _merges(topic, lane_id)


def merged_since(topic: Topic, lane_id: LaneId, offset: int) -> Sequence[Frame]:
    """Return what was missed, as shown, put together as a full queue is.

    All removals are in it: the client may have rows from after its bookmark.
    """
    missed = passing(lane_id, topic.name, topic.journal.after(offset))
    backlog = Backlog(queue_rules(lane_id, topic.definition))
    # As if every key had been there: the client ignores a removal too many, and one too few would
    # leave it a record that is gone.
    backlog.absorb(all_shown(shown_as(lane_id.select), missed), lambda *_: True)
    return backlog.rows()


def rows_since(topic: Topic, lane_id: LaneId, mode: ResumeMode, offset: int) -> Sequence[Frame]:
    """Return what a client is sent that has everything up to an offset."""
    if mode is ResumeMode.REPLAY:
        return replayed(topic, lane_id, topic.journal.after(offset))
    if mode is ResumeMode.CHANGES:
        return _changes(topic, lane_id, offset)
    return topic.records(lane_id.feed)


def replayed(topic: Topic, lane_id: LaneId, missed: Sequence[Frame]) -> Sequence[Frame]:
    """Return journalled messages as the lane would have sent them, on their own timeline.

    The rows may be those of another subscriber: they are read, never changed.
    """
    if not missed:
        return ()

    def made() -> Iterable[Frame]:
        if lane_id.interval_ns:
            return conflate_recorded(missed, lane_id, topic.definition.key_spec, topic.name)
        return passing(lane_id, topic.name, missed)

    return topic.replays.rows(lane_id, missed[0].offset, missed[-1].offset, made)


def replay_start(topic: Topic, replay: Replay) -> int | None:
    """Return the offset after which a bookmark subscription begins; None: with a snapshot.

    Raises:
        BookmarkExpired: it cannot be found, and `bookmark_not_found=fail`.
    """
    start = replay.start
    if start is None:
        return topic.beginning
    if isinstance(start, int):
        if topic.archived is not None and topic.is_in_archive(start):
            return topic.archived.start_at(start)
        # A bisection would need times that never step back; the wall clock does.
        older = [f.offset for f in topic.journal.after(0) if f.timestamp_ms < start]
        return older[-1] if older else topic.journal.dropped_through
    if topic.reaches(start):
        return start.offset
    if replay.not_found is NotFound.FAIL:
        raise topic.why_unreachable(start)
    return None if replay.not_found is NotFound.NOW else topic.beginning


def is_found(topic: Topic, subscription: Subscription) -> bool:
    """Return whether a bookmark subscription begins where it asked to."""
    start = None if subscription.replay is None else subscription.replay.start
    return not isinstance(start, Bookmark) or topic.reaches(start)


def _needs_whole(lane_id: LaneId) -> bool:
    """Return whether no position says what is missing: windows, groups, removals of a filter."""
    return lane_id.feed.shape is not None or (lane_id.oof and lane_id.feed.filter is not None)


def _merges(topic: Topic, lane_id: LaneId) -> bool:
    """Return whether a conflated queue of the lane has more than the newest of each key."""
    rules = queue_rules(lane_id, topic.definition)
    is_plain = rules.merge is None and rules.match is None
    return not (lane_id.interval_ns or lane_id.delta or is_plain)


def _is_newest_of_records(topic: Topic, lane_id: LaneId) -> bool:
    of_key_fields = set(lane_id.feed.key_spec.paths) <= set(topic.definition.key_spec.paths)
    return of_key_fields and lane_id.merge is None and lane_id.never is None


def _board_reaches(topic: Topic, bookmark: Bookmark) -> bool:
    if topic.sow is None or not topic.definition.key_spec:
        return False
    board = topic.sow.board
    return bookmark.offset >= board.horizon and bookmark.offset >= board.exempt_through


def _changes(topic: Topic, lane_id: LaneId, offset: int) -> Sequence[Frame]:
    """Return the newest record of each conflation key changed since, oldest first.

    All removals are in it: the client may have rows from after its bookmark, with keys that came
    and went.
    """
    assert topic.sow is not None
    matches = matcher(lane_id.feed.filter, topic.name)
    rows = [
        row
        for _, row in topic.sow.board.rows(offset, oof=lane_id.oof)
        if not row.removed and (matches is None or matches(row.payload, row.key))
    ]
    if lane_id.oof:
        rows = sorted((*rows, *topic.sow.board.departed(offset)), key=lambda row: row.offset)
    if lane_id.counted and topic.journal.dropped_through <= offset:
        rows = _counted(rows, topic.journal.after(offset))
    key_spec = lane_id.feed.key_spec
    if key_spec == topic.definition.key_spec or lane_id.interval_ns == 0:
        return rows
    key_of = conflation_key(key_spec)
    newest = {key_of(row.payload): row for row in rows}
    return sorted(newest.values(), key=lambda row: row.offset)


def _counted(rows: Sequence[Frame], missed: Sequence[Frame]) -> list[Frame]:
    """Return rows with the messages that they stand for, as far as the journal has them."""
    counts: dict[str, Receipt] = {}
    for frame in missed:
        if not frame.removed:
            now, earlier = receipt_of(frame), counts.get(frame.key)
            counts[frame.key] = now if earlier is None else earlier.then(now)
    return [counts[row.key].on(row) if row.key in counts else row for row in rows]


# --- The backfill of a subscriber


def begin(subscriber: Subscriber, limits: QueueLimits, now: Instant) -> None:
    """Give a new subscriber its backfill, or none if it asks for nothing but what follows.

    The cut is the topic's head at this very call: no gap to live rows, and no overlap. A replay
    beyond the session's limits is conflated where the topic allows it.

    Raises:
        BookmarkExpired: a bookmark that cannot be found and is not to be replaced.
    """
    subscription = subscriber.member.subscription
    if subscription.resume is not None:
        subscriber.backfill = _resumed(subscriber, subscription.resume, limits)
    elif subscription.replay is not None:
        subscriber.backfill = _replay(subscriber, subscription.replay, now)
    elif subscription.command.queries:
        subscriber.backfill = _snapshot(subscriber)


def continue_replay(subscriber: Subscriber, before: RowCursor) -> RowCursor | None:
    """Return what was published while a replay ran; None once it has caught up with the topic."""
    topic, lane_id = subscriber.topic, subscriber.member.subscription.lane_id
    assert before.through is not None, "a replay ends at an offset"
    if before.through == topic.head:
        return None
    if topic.journal.dropped_through > before.through:
        return _snapshot_instead(subscriber, before.through)
    missed = topic.journal.after(before.through)
    cursor = _cursor(subscriber, replayed(topic, lane_id, missed))
    cursor.pacing = before.pacing
    return cursor


def supply(subscriber: Subscriber, piece: Sequence[Frame]) -> None:
    """Continue a replay with what an archive has; an empty piece: a snapshot has to stand for it.

    The last piece is followed by what the journal has.
    """
    topic, history, cursor = subscriber.topic, subscriber.history, subscriber.backfill
    assert history is not None, "it asked for them"
    assert cursor is not None, "an archive supplies a backfill"
    if not piece:
        subscriber.backfill = _snapshot_instead(subscriber, history.after)
        subscriber.history = None
        return
    cursor.refill(history.rows(piece))
    if not history.has_interval:
        cursor.through = history.after  # a piece is an answer by itself, so it has an id
    if topic.journal.dropped_through <= history.after:
        cursor.refill([*cursor.rows, *history.rest(topic.journal)])
        cursor.through, subscriber.history = topic.head, None


def in_order(rows: Sequence[Frame], subscription: Subscription) -> Sequence[Frame]:
    """Return snapshot rows in the order asked for; else as they are: a window's, or by age."""
    order, shape = subscription.order, subscription.lane_id.feed.shape
    # A window's rows come in its own order, which is nearly always the one asked for.
    if order is None or (isinstance(shape, Window) and shape.order == order):
        return rows
    token = order.sort_token
    return sorted(rows, key=lambda row: (token(row.payload), row.key))


def _resumed(subscriber: Subscriber, bookmark: Bookmark, limits: QueueLimits) -> RowCursor:
    topic, lane_id = subscriber.topic, subscriber.member.subscription.lane_id
    too_long = limits.is_above(FULL_PERCENT, *topic.journal.backlog(bookmark.offset))
    mode = resume_mode(topic, lane_id, bookmark, too_long=too_long)
    if mode is ResumeMode.REPLAY and not topic.journal_reaches(bookmark):
        return _from_archive(subscriber, bookmark.offset)
    if mode is ResumeMode.REPLAY and is_merged(topic, lane_id, bookmark, too_long=too_long):
        rows = merged_since(topic, lane_id, bookmark.offset)
        cursor = _continued(subscriber, mode, bookmark, rows)
        cursor.shown = None  # they were shown before they were merged
        return cursor
    rows = rows_since(topic, lane_id, mode, bookmark.offset)
    return _continued(subscriber, mode, bookmark, rows)


def _continued(
    subscriber: Subscriber, mode: ResumeMode, bookmark: Bookmark, rows: Sequence[Frame]
) -> RowCursor:
    """Return how a bookmark is continued with these rows, and how much was missed since."""
    topic = subscriber.topic
    gap = topic.head - bookmark.offset if bookmark.epoch == topic.epoch else None
    gap_ms = None if gap is None else topic.recorded_ms_since(bookmark.offset)
    # A bookmark of the future, from a store that has lost its end, says nothing of what is missed.
    gap = gap if gap is None or gap >= 0 else None
    resumed = Resumed(subscriber.member.name, topic.name, mode, gap, gap_ms)
    if mode is ResumeMode.SNAPSHOT:
        rows = in_order(rows, subscriber.member.subscription)
        return _cursor(subscriber, rows, resumed, is_snapshot=True)
    return _cursor(subscriber, rows, resumed)


def _replay(subscriber: Subscriber, replay: Replay, now: Instant) -> RowCursor:
    topic, subscription = subscriber.topic, subscriber.member.subscription
    start = replay_start(topic, replay)
    if start is None:
        assert isinstance(replay.start, Bookmark), "all else is found"
        records = topic.records(subscription.lane_id.feed)
        return _continued(subscriber, ResumeMode.SNAPSHOT, replay.start, records)
    if start < topic.journal.dropped_through:
        cursor = _from_archive(subscriber, start)
    else:
        rows = replayed(topic, subscription.lane_id, topic.journal.after(start))
        gap = topic.head - start if is_found(topic, subscription) else None
        resumed = Resumed(subscriber.member.name, topic.name, ResumeMode.REPLAY, gap)
        cursor = _cursor(subscriber, rows, resumed)
    cursor.pacing = None if replay.rate is None else Pacing(replay.rate, now)
    return cursor


def _from_archive(subscriber: Subscriber, start: int) -> RowCursor:
    """Return a replay that begins in an archive; its rows come as they are supplied."""
    topic, subscription = subscriber.topic, subscriber.member.subscription
    replay = subscription.replay
    since_ms = None if replay is None or not isinstance(replay.start, int) else replay.start
    is_exact = since_ms is None and is_found(topic, subscription)
    gap = topic.head - start if is_exact else None
    resumed = Resumed(subscriber.member.name, topic.name, ResumeMode.REPLAY, gap)
    cursor = _cursor(subscriber, (), resumed)
    cursor.through = start
    subscriber.history = HistoryReplay(
        subscription.lane_id, topic.definition.key_spec, topic.name, start, since_ms
    )
    return cursor


def _snapshot(subscriber: Subscriber) -> RowCursor:
    subscription = subscriber.member.subscription
    records = subscriber.topic.records(subscription.lane_id.feed)
    return _cursor(subscriber, in_order(records, subscription), is_snapshot=True)


def _snapshot_instead(subscriber: Subscriber, reached: int) -> RowCursor:
    """Return a snapshot for a replay that got as far as an offset, and whose rest is gone."""
    topic = subscriber.topic
    gap = topic.head - reached
    resumed = Resumed(subscriber.member.name, topic.name, ResumeMode.SNAPSHOT, gap)
    rows = topic.records(subscriber.member.subscription.lane_id.feed)
    return _cursor(subscriber, rows, resumed, is_snapshot=True)


def _cursor(
    subscriber: Subscriber,
    rows: Sequence[Frame],
    resumed: Resumed | None = None,
    *,
    is_snapshot: bool = False,
) -> RowCursor:
    subscription = subscriber.member.subscription
    return RowCursor(
        rows,
        subscriber.topic.head,
        is_snapshot=is_snapshot,
        resumed=resumed,
        batch_size=subscription.batch_size,
        shown=shown_as(subscription.lane_id.select),
    )
