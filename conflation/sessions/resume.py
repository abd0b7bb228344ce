"""By which of three ways a bookmark is continued, and with which rows (CONTRACT 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.boards.screen import matcher
from conflation.bookmark import Bookmark
from conflation.count import Count, count_of
from conflation.definition import CONFLATING
from conflation.frame import Frame
from conflation.lane_id import LaneId
from conflation.outputs import ResumeMode
from conflation.sessions.past import passing
from conflation.sessions.session import QueueLimits
from conflation.subscription import NotFound, Replay, Subscription
from conflation.topics.recorded import conflate_recorded
from conflation.topics.topic import Topic
from keys.extract import conflation_key

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
        return ResumeMode.CHANGES
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
    mode = resume_mode(topic, lane_id, bookmark, too_long=too_long and conflated)
    return too_long and mode is ResumeMode.REPLAY


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
    counts: dict[str, Count] = {}
    for frame in missed:
        if not frame.removed:
            now, earlier = count_of(frame), counts.get(frame.key)
            counts[frame.key] = now if earlier is None else earlier.then(now)
    return [counts[row.key].on(row) if row.key in counts else row for row in rows]
