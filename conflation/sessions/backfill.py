"""What a new subscription begins with, as an opening; None: with the next message."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.conflation.definition import CONFLATING
from tidegate.conflation.frame import Frame, Receipt, receipt_of
from tidegate.conflation.lane_id import LaneId, Window
from tidegate.conflation.lanes.lane import all_shown, shown_as
from tidegate.conflation.lanes.pending import Backlog
from tidegate.conflation.operators.filter import matcher
from tidegate.conflation.outputs import Resumed, ResumeMode
from tidegate.conflation.sessions.rows import Backfill, HistoryReplay, Pacing, passing
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import NotFound, Replay, Subscription, queue_rules
from tidegate.conflation.topics.recorded import conflate_recorded
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.spec import conflation_key
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

# By which of three ways a bookmark is continued, and with which rows (CONTRACT 4.2).


FULL_PERCENT = 100


def resume_mode(topic: Topic, lane_id: LaneId, bookmark: Bookmark, *, too_long: bool) -> ResumeMode:
    """The first way that fits; `too_long`: a replay would be over the session's limits."""
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
    """Whether every message since a bookmark is more than may wait, and cannot be conflated.

    An interval queues nothing. `conflated`: the session lets policies conflate.
    """
    bookmark, lane_id = subscription.resume, subscription.lane_id
    if bookmark is None or lane_id.interval_ns or not topic.journal_reaches(bookmark):
        return False  # what an archive has is pulled from there, and waits in no queue
    too_long = limits.is_above(FULL_PERCENT, *topic.journal.backlog(bookmark.offset))
    if conflated and is_merged(topic, lane_id, bookmark, too_long=too_long):
        return False
    mode = resume_mode(topic, lane_id, bookmark, too_long=too_long and conflated)
    return too_long and mode is ResumeMode.REPLAY


def is_merged(topic: Topic, lane_id: LaneId, bookmark: Bookmark, *, too_long: bool) -> bool:
    """Whether what was missed is merged by the topic's rules, as its queue would have been.

    The newest values alone would lose what the older ones add to a sum.
    """
    has_records = bool(topic.definition.key_spec) and _board_reaches(topic, bookmark)
    conflates = too_long and has_records and topic.definition.policy in CONFLATING
    return conflates and topic.journal_reaches(bookmark) and _merges(topic, lane_id)


def merged_since(topic: Topic, lane_id: LaneId, offset: int) -> Sequence[Frame]:
    """What was missed, as shown, put together as a full queue is.

    Of removals all: the client may have got rows behind its bookmark.
    """
    missed = passing(topic, lane_id, topic.journal.after(offset))
    backlog = Backlog(queue_rules(lane_id, topic.definition))
    backlog.absorb(all_shown(shown_as(lane_id.select), missed), lambda *_: True)
    return backlog.rows()


def rows_since(topic: Topic, lane_id: LaneId, mode: ResumeMode, offset: int) -> Sequence[Frame]:
    """What a client that has seen everything up to an offset is sent."""
    if mode is ResumeMode.REPLAY:
        return replayed(topic, lane_id, topic.journal.after(offset))
    if mode is ResumeMode.CHANGES:
        return _changes(topic, lane_id, offset)
    return topic.records(lane_id.feed)


def replayed(topic: Topic, lane_id: LaneId, missed: Sequence[Frame]) -> Sequence[Frame]:
    """Journalled messages as the lane would have told them, on their own timeline."""
    if lane_id.interval_ns:
        return conflate_recorded(missed, lane_id, topic.definition.key_spec, topic.name)
    return passing(topic, lane_id, missed)


def replay_start(topic: Topic, replay: Replay) -> int | None:
    """The offset behind which a bookmark subscription begins; None: with a snapshot instead.

    Raises:
        BookmarkExpired: it cannot be found, and `bookmark_not_found=fail`.
    """
    start = replay.start
    if start is None:
        return topic.beginning
    if isinstance(start, int):
        if topic.archived is not None and topic.is_in_archive(start):
            return topic.archived.start_at(start)
        older = [f.offset for f in topic.journal.after(0) if f.timestamp_ms < start]
        return older[-1] if older else topic.journal.dropped_through
    if topic.reaches(start):
        return start.offset
    if replay.not_found is NotFound.FAIL:
        raise topic.not_found(start)
    return None if replay.not_found is NotFound.NOW else topic.beginning


def is_found(topic: Topic, subscription: Subscription) -> bool:
    """Whether a bookmark subscription begins where it asked to."""
    start = None if subscription.replay is None else subscription.replay.start
    return not isinstance(start, Bookmark) or topic.reaches(start)


def _needs_whole(lane_id: LaneId) -> bool:
    """Windows, groups, and removals from a filter cannot be told from a position."""
    return lane_id.feed.shape is not None or (lane_id.oof and lane_id.feed.filter is not None)


def _merges(topic: Topic, lane_id: LaneId) -> bool:
    """Whether a queue of the lane is more than the newest message of each key, put together."""
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
    """The newest record of each conflation key changed since, oldest first.

    Of removals all: the client may have got rows behind its bookmark, with keys that came and went.
    """
    assert topic.sow is not None
    matches = matcher(lane_id.feed.filter, topic.name)
    rows = [
        row
        for _, row in topic.sow.board.rows(offset, oof=lane_id.oof)
        if not row.removed and (matches is None or matches(row.payload, row.key))
    ]
    if lane_id.oof:
        rows = sorted((*rows, *topic.sow.board.left(offset)), key=lambda row: row.offset)
    if lane_id.counted and topic.journal.dropped_through <= offset:
        rows = _counted(rows, topic.journal.after(offset))
    key_spec = lane_id.feed.key_spec
    if key_spec == topic.definition.key_spec or lane_id.interval_ns == 0:
        return rows
    key_of = conflation_key(key_spec)
    newest = {key_of(row.payload): row for row in rows}
    return sorted(newest.values(), key=lambda row: row.offset)


def _counted(rows: Sequence[Frame], missed: Sequence[Frame]) -> list[Frame]:
    """Rows with the messages that they stand for, as far back as the journal knows them."""
    counts: dict[str, Receipt] = {}
    for frame in missed:
        if not frame.removed:
            now, earlier = receipt_of(frame), counts.get(frame.key)
            counts[frame.key] = now if earlier is None else earlier.then(now)
    return [counts[row.key].on(row) if row.key in counts else row for row in rows]


def begin(
    name: str, topic: Topic, subscription: Subscription, limits: QueueLimits, now: Instant
) -> Backfill | None:
    """The cut is the topic's head at this very call: no gap to live rows, and no overlap.

    A replay beyond the session's limits is conflated where the topic allows it.

    Raises:
        BookmarkExpired: a bookmark that cannot be found and is not to be replaced.
    """
    if subscription.resume is not None:
        return _resumed(name, topic, subscription, limits)
    if subscription.replay is not None:
        return _replay(name, topic, subscription, now)
    if not subscription.command.queries:
        return None
    records = topic.records(subscription.lane_id.feed)
    return _opening(name, topic, subscription, in_order(records, subscription), group=True)


def go_on(opening: Backfill, topic: Topic, subscription: Subscription) -> Backfill | None:
    """What was published while a replay ran; None once it has caught up with the topic."""
    if opening.cut == topic.head:
        return None
    missed = topic.journal.after(opening.cut)
    if topic.journal.dropped_through > opening.cut:
        resumed = Resumed(opening.name, topic.name, ResumeMode.SNAPSHOT, topic.head - opening.cut)
        rows = topic.records(subscription.lane_id.feed)
        return _opening(opening.name, topic, subscription, rows, group=True, resumed=resumed)
    meanwhile = replayed(topic, subscription.lane_id, missed)
    following = _opening(opening.name, topic, subscription, meanwhile)
    following.pacing = opening.pacing
    return following


def brought(
    opening: Backfill, topic: Topic, subscription: Subscription, piece: Sequence[Frame]
) -> Backfill:
    """How a replay goes on with what an archive has: with that, or what has to be told instead.

    No messages: they are gone, and a snapshot stands for them.
    """
    past, lane_id = opening.past, subscription.lane_id
    assert past is not None, "it asked for them"
    if not piece:
        resumed = Resumed(opening.name, topic.name, ResumeMode.SNAPSHOT, topic.head - past.after)
        rows = topic.records(lane_id.feed)
        return _opening(opening.name, topic, subscription, rows, group=True, resumed=resumed)
    opening.rows, opening.sent = past.rows(topic, lane_id, piece), 0
    opening.cut = opening.cut if past.recording is not None else past.after
    if topic.journal.dropped_through <= past.after:
        opening.rows = [*opening.rows, *past.rest(topic, lane_id)]
        opening.cut, opening.past = topic.head, None
    return opening


def in_order(rows: Sequence[Frame], subscription: Subscription) -> Sequence[Frame]:
    """Snapshot rows in the order that was asked for; else a window's own, or the oldest first."""
    order, shape = subscription.order, subscription.lane_id.feed.shape
    if order is None and not isinstance(shape, Window):
        return rows
    order = shape.order if order is None and isinstance(shape, Window) else order
    if order is None:
        return sorted(rows, key=lambda row: row.key)
    token = order.sort_token
    return sorted(rows, key=lambda row: (token(row.payload), row.key))


def _resumed(name: str, topic: Topic, subscription: Subscription, limits: QueueLimits) -> Backfill:
    bookmark, lane_id = subscription.resume, subscription.lane_id
    assert bookmark is not None
    missed, size = topic.journal.backlog(bookmark.offset)
    too_long = missed > limits.messages_max or size > limits.bytes_max
    mode = resume_mode(topic, lane_id, bookmark, too_long=too_long)
    if mode is ResumeMode.REPLAY and not topic.journal_reaches(bookmark):
        return _from_past(name, topic, subscription, bookmark.offset)
    if mode is ResumeMode.REPLAY and is_merged(topic, lane_id, bookmark, too_long=too_long):
        rows = merged_since(topic, lane_id, bookmark.offset)
        opening = _continued(name, topic, subscription, mode, bookmark, rows)
        opening.shown = None  # as they were merged
        return opening
    rows = rows_since(topic, lane_id, mode, bookmark.offset)
    return _continued(name, topic, subscription, mode, bookmark, rows)


def _continued(
    name: str,
    topic: Topic,
    subscription: Subscription,
    mode: ResumeMode,
    bookmark: Bookmark,
    rows: Sequence[Frame],
) -> Backfill:
    """How a bookmark is continued, with these rows, and how much was missed since."""
    gap = topic.head - bookmark.offset if bookmark.epoch == topic.epoch else None
    resumed = Resumed(
        name,
        topic.name,
        mode,
        gap if gap is None or gap >= 0 else None,
        None if gap is None else topic.recorded_ms_since(bookmark.offset),
    )
    group = mode is ResumeMode.SNAPSHOT
    rows = in_order(rows, subscription) if group else rows
    return _opening(name, topic, subscription, rows, group=group, resumed=resumed)


def _replay(name: str, topic: Topic, subscription: Subscription, now: Instant) -> Backfill:
    replay = subscription.replay
    assert replay is not None
    start = replay_start(topic, replay)
    if start is None:
        assert isinstance(replay.start, Bookmark), "all else is found"
        records = topic.records(subscription.lane_id.feed)
        return _continued(name, topic, subscription, ResumeMode.SNAPSHOT, replay.start, records)
    if start < topic.journal.dropped_through:
        opening = _from_past(name, topic, subscription, start)
        opening.pacing = None if replay.rate is None else Pacing(replay.rate, now)
        return opening
    rows = replayed(topic, subscription.lane_id, topic.journal.after(start))
    gap = topic.head - start if is_found(topic, subscription) else None
    opening = _opening(
        name, topic, subscription, rows, resumed=Resumed(name, topic.name, ResumeMode.REPLAY, gap)
    )
    opening.pacing = None if replay.rate is None else Pacing(replay.rate, now)
    return opening


def _from_past(name: str, topic: Topic, subscription: Subscription, start: int) -> Backfill:
    """A replay that begins in an archive; its rows come as they are brought."""
    replay = subscription.replay
    since_ms = None if replay is None or not isinstance(replay.start, int) else replay.start
    is_exact = since_ms is None and is_found(topic, subscription)
    gap = topic.head - start if is_exact else None
    resumed = Resumed(name, topic.name, ResumeMode.REPLAY, gap)
    opening = _opening(name, topic, subscription, (), resumed=resumed)
    opening.cut = start
    opening.past = HistoryReplay.of(topic, subscription.lane_id, start, since_ms)
    return opening


def _opening(
    name: str,
    topic: Topic,
    subscription: Subscription,
    rows: Sequence[Frame],
    *,
    group: bool = False,
    resumed: Resumed | None = None,
) -> Backfill:
    return Backfill(
        name,
        topic.name,
        topic.epoch,
        rows,
        topic.head,
        group,
        resumed,
        subscription.batch_size,
        shown_as(subscription.lane_id.select),
    )
