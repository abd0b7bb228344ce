"""The backfill of a new subscription: a snapshot, a replay, what was missed, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from tidegate.conflation.boards.board import Pair
from tidegate.conflation.definition import CONFLATING, queue_rules
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import Frame, Receipt, receipt_of
from tidegate.conflation.lanes.lane import all_shown, shown_as
from tidegate.conflation.lanes.member import Backlog
from tidegate.conflation.operators.filter import matcher
from tidegate.conflation.outputs import Resumed, ResumeMode
from tidegate.conflation.sessions.rows import Pacing, RowCursor
from tidegate.conflation.sessions.session import FULL_PERCENT, QueueLimits
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.steps import (
    RowBuild,
    Steps,
    in_steps,
    items_at_once,
    pause_before,
    sorted_in_steps,
)
from tidegate.conflation.subscription import LaneId, NotFound, Replay, Subscription, Window
from tidegate.conflation.topics.recorded import HistoryReplay, conflate_recorded, passing
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.spec import conflation_key
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

# --- The three ways to resume after a bookmark (CONTRACT 4.2)


def resume_mode(
    topic: Topic,
    lane_id: LaneId,
    bookmark: Bookmark,
    *,
    too_long: bool,
    has_records: bool = False,
) -> ResumeMode:
    """Return the mode for a bookmark.

    The modes take time for each key that changed (changes), for each message (replay), or for each
    record (snapshot). A reader may have been sent rows beyond its id: with an interval, or the
    first rows of a flush. If these are of an earlier epoch, some of them may be lost, and only a
    snapshot corrects the records that it holds.

    Args:
        topic: with the messages since.
        lane_id: of the subscription.
        bookmark: where the reader is.
        too_long: a replay exceeds the session's limits.
        has_records: the subscription began with a snapshot, so its reader holds records.
    """
    is_ours = topic.place(bookmark).epoch == topic.epoch
    if not is_ours or bookmark.offset > topic.head or _needs_whole(lane_id):
        return ResumeMode.SNAPSHOT
    # With `oof` a reader keeps records, too, though it began without them.
    keeps_rows = has_records or lane_id.oof or lane_id.interval_ns
    if bookmark.epoch != topic.epoch and keeps_rows:
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
        return False  # an archive is read as the socket drains, and fills no queue
    too_long = limits.is_above(FULL_PERCENT, *topic.journal.backlog(bookmark.offset))
    if conflated and is_merged(topic, lane_id, bookmark, too_long=too_long):
        return False
    mode = resume_mode(
        topic,
        lane_id,
        bookmark,
        too_long=too_long and conflated,
        has_records=subscription.command.queries,
    )
    return too_long and mode is ResumeMode.REPLAY


def is_merged(topic: Topic, lane_id: LaneId, bookmark: Bookmark, *, too_long: bool) -> bool:
    """Return whether missed messages are merged by the topic's rules, as a queue of them would be.

    The newest values alone would lack what the older ones add to a sum.
    """
    has_records = bool(topic.definition.key_spec) and _board_reaches(topic, bookmark)
    conflates = too_long and has_records and topic.definition.policy in CONFLATING
    return conflates and topic.journal_reaches(bookmark) and _merges(topic, lane_id)


def replay_start(topic: Topic, replay: Replay) -> int | None:
    """Return the offset after which a bookmark subscription begins; None: with a snapshot.

    Raises:
        BookmarkExpired: it cannot be found, and `bookmark_not_found=fail`.
    """
    start = replay.start
    if start is None:
        return topic.beginning
    if isinstance(start, int):
        if replay.not_found is NotFound.FAIL and not topic.reaches_time(start):
            raise BookmarkExpired("the journal does not reach back to this time")
        return topic.start_at(start)
    if topic.reaches(start):
        return start.offset
    if replay.not_found is NotFound.FAIL:
        raise topic.why_unreachable(start)
    return None if replay.not_found is NotFound.NOW else topic.beginning


def stand_in(topic: Topic, replay: Replay | None) -> NotFound | None:
    """Return what replaces the start of a bookmark subscription; None if the start is found.

    A start by time is replaced by all that is kept, and never by a snapshot.
    """
    if replay is None or replay.start is None:
        return None
    if isinstance(replay.start, int):
        return None if topic.reaches_time(replay.start) else NotFound.EPOCH
    return None if topic.reaches(replay.start) else replay.not_found


def _needs_whole(lane_id: LaneId) -> bool:
    """Return whether only a snapshot tells what is missing: windows, groups, removals of a filter.

    Positions do not say which rows have left them.
    """
    return lane_id.feed.shape is not None or (lane_id.oof and lane_id.feed.filter is not None)


def _merges(topic: Topic, lane_id: LaneId) -> bool:
    """Return whether a conflated queue of the lane merges messages by rules."""
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


# --- The backfill of a subscriber


def begin(subscriber: Subscriber, limits: QueueLimits, now: Instant) -> None:
    """Give a new subscriber its backfill, or none if it asks only for messages from now on.

    The cut is the topic's head at this call, so live rows follow without gap or overlap. The rows
    are made in steps, of which this call runs the first. A replay beyond the session's limits is
    conflated if the topic allows it.

    Raises:
        BookmarkExpired: the bookmark is not found, and `bookmark_not_found=fail`.
    """
    subscription = subscriber.member.subscription
    if subscription.resume is not None:
        subscriber.backfill = _resumed(subscriber, subscription.resume, limits, now)
    elif subscription.replay is not None:
        subscriber.backfill = _replay(subscriber, subscription.replay, now)
    elif subscription.command.queries:
        rows = RowBuild(snapshot_rows(subscriber.topic, subscription))
        subscriber.backfill = _cursor(subscriber, rows, is_snapshot=True)


def begin_late(subscriber: Subscriber, missed: Sequence[Frame]) -> None:
    """Give a subscriber without a snapshot the messages since its cut, as it waited for its board.

    They are sent as a replay of them would be.
    """
    if missed:
        topic, lane_id = subscriber.topic, subscriber.member.subscription.lane_id
        # Not `topic.replays`, which others share: a lane with `oof` has removals by its filter.
        steps = conflate_recorded(missed, lane_id, topic.definition.key_spec, topic.name)
        subscriber.backfill = _cursor(subscriber, RowBuild(steps))


def continue_replay(subscriber: Subscriber, before: RowCursor) -> RowCursor | None:
    """Return what was published while a replay ran; None once it has caught up with the topic.

    Raises:
        BookmarkExpired: the journal has lost some of it, and `bookmark_not_found=fail`.
    """
    topic, lane_id = subscriber.topic, subscriber.member.subscription.lane_id
    assert before.through is not None, "a replay ends at an offset"
    if before.through == topic.head:
        return None
    if topic.journal.dropped_through > before.through:
        return _instead(subscriber, before.through)
    cursor = _cursor(subscriber, replayed(topic, lane_id, before.through))
    cursor.pacing, cursor.is_in_order = before.pacing, before.is_in_order
    return cursor


def supply(subscriber: Subscriber, piece: Sequence[Frame]) -> None:
    """Continue a replay with messages of an archive; a snapshot replaces it if there are none.

    The last piece is followed by the messages of the journal.

    Raises:
        BookmarkExpired: the archive has lost some of them, and `bookmark_not_found=fail`.
    """
    topic, history, cursor = subscriber.topic, subscriber.history, subscriber.backfill
    assert history is not None, "it asked for them"
    assert cursor is not None, "an archive supplies a backfill"
    if not piece:
        subscriber.history = None
        subscriber.backfill = _instead(subscriber, history.after)
        return
    cursor.refill(history.rows(piece))
    if not history.has_interval:
        cursor.through = history.after  # each piece ends with an id
    if topic.journal.dropped_through <= history.after:
        cursor.refill([*cursor.rows, *history.rest(topic.journal)])
        cursor.through, subscriber.history = topic.head, None


def _resumed(
    subscriber: Subscriber, bookmark: Bookmark, limits: QueueLimits, now: Instant
) -> RowCursor:
    topic, subscription = subscriber.topic, subscriber.member.subscription
    lane_id, replay = subscription.lane_id, subscription.replay
    too_long = limits.is_above(FULL_PERCENT, *topic.journal.backlog(bookmark.offset))
    has_records = subscription.command.queries
    mode = resume_mode(topic, lane_id, bookmark, too_long=too_long, has_records=has_records)
    if replay is not None and mode is ResumeMode.SNAPSHOT and not topic.reaches(bookmark):
        return _replay(subscriber, Replay(bookmark, replay.not_found), now)
    if mode is ResumeMode.REPLAY and not topic.journal_reaches(bookmark):
        return _from_archive(subscriber, bookmark.offset)
    if mode is ResumeMode.REPLAY and is_merged(topic, lane_id, bookmark, too_long=too_long):
        rows = RowBuild(merged_since(topic, lane_id, bookmark.offset))
        cursor = _continued(subscriber, mode, bookmark, rows)
        cursor.shown = None  # `merged_since` has selected the fields
        return cursor
    rows = rows_since(topic, subscription, mode, bookmark.offset)
    cursor = _continued(subscriber, mode, bookmark, rows)
    # A piece of changes leaves out records for what changed them behind it, which another epoch may
    # lack. Only with an interval a reader that returns to another epoch is sent all records.
    is_of_changes = mode is ResumeMode.CHANGES
    cursor.is_in_order = is_of_changes == bool(lane_id.interval_ns)
    return cursor


def _continued(
    subscriber: Subscriber,
    mode: ResumeMode,
    bookmark: Bookmark,
    rows: RowBuild,
) -> RowCursor:
    """Return a cursor with these rows, and with the event `resumed`: the mode and the gap."""
    topic = subscriber.topic
    is_ours = topic.place(bookmark).epoch == topic.epoch
    gap = topic.head - bookmark.offset if is_ours else None
    gap_ms = None if gap is None else topic.recorded_ms_since(bookmark.offset)
    # Beyond the head: the store has lost its end, and what was missed is not known.
    gap = gap if gap is None or gap >= 0 else None
    not_found = NotFound.NOW if _loses(subscriber, mode, gap) else None
    resumed = Resumed(subscriber.member.name, topic.name, mode, gap, gap_ms, not_found=not_found)
    return _cursor(subscriber, rows, resumed, is_snapshot=mode is ResumeMode.SNAPSHOT)


def _loses(subscriber: Subscriber, mode: ResumeMode, gap: int | None) -> bool:
    """Return whether a snapshot leaves `gap` messages missing for good.

    A subscription that began with a snapshot is complete again. So is an interval on a topic with
    records, as the snapshot has the newest value of each key.
    """
    subscription = subscriber.member.subscription
    is_whole = subscription.command.queries or (
        subscription.replay is None
        and subscription.lane_id.interval_ns > 0
        and subscriber.topic.sow is not None
    )
    return mode is ResumeMode.SNAPSHOT and gap != 0 and not is_whole


def _replay(subscriber: Subscriber, replay: Replay, now: Instant) -> RowCursor:
    topic, subscription = subscriber.topic, subscriber.member.subscription
    start = replay_start(topic, replay)
    if start is None:
        assert isinstance(replay.start, Bookmark), "other starts never need a snapshot"
        rows = RowBuild(snapshot_rows(topic, subscription))
        return _continued(subscriber, ResumeMode.SNAPSHOT, replay.start, rows)
    if start < topic.journal.dropped_through:
        cursor = _from_archive(subscriber, start)
    else:
        rows = replayed(topic, subscription.lane_id, start)
        not_found = stand_in(topic, replay)
        gap = topic.head - start if not_found is None else None
        resumed = Resumed(
            subscriber.member.name, topic.name, ResumeMode.REPLAY, gap, not_found=not_found
        )
        cursor = _cursor(subscriber, rows, resumed)
    cursor.pacing = None if replay.rate is None else Pacing(replay.rate, now)
    cursor.is_in_order = _resumes_as_replay(topic, subscription)
    return cursor


def _resumes_as_replay(topic: Topic, subscription: Subscription) -> bool:
    """Return whether a reader that returns in the middle of a replay is sent the rest of it."""
    lane_id, replay, definition = subscription.lane_id, subscription.replay, topic.definition
    has_rate = replay is not None and replay.rate is not None
    conflates = definition.policy in CONFLATING and bool(definition.key_spec)
    return not (lane_id.interval_ns or has_rate or conflates or _needs_whole(lane_id))


def _from_archive(subscriber: Subscriber, start: int) -> RowCursor:
    """Return a replay that begins in an archive, which supplies its rows later."""
    topic, subscription = subscriber.topic, subscriber.member.subscription
    replay = subscription.replay
    since_ms = None if replay is None or not isinstance(replay.start, int) else replay.start
    not_found = None if subscription.resume is not None else stand_in(topic, replay)
    is_exact = since_ms is None and not_found is None
    gap = topic.head - start if is_exact else None
    resumed = Resumed(
        subscriber.member.name, topic.name, ResumeMode.REPLAY, gap, not_found=not_found
    )
    cursor = _cursor(subscriber, (), resumed)
    cursor.through = start
    subscriber.history = HistoryReplay(
        subscription.lane_id, topic.definition.key_spec, topic.name, start, since_ms
    )
    return cursor


def _instead(subscriber: Subscriber, reached: int) -> RowCursor:
    """Return a snapshot for a replay that got as far as an offset, and whose rest is gone.

    Raises:
        BookmarkExpired: `bookmark_not_found=fail`.
    """
    topic, subscription = subscriber.topic, subscriber.member.subscription
    bookmark = topic.bookmark(reached)
    if subscription.replay is not None and subscription.replay.not_found is NotFound.FAIL:
        raise topic.why_unreachable(bookmark)
    rows = RowBuild(snapshot_rows(topic, subscription))
    return _continued(subscriber, ResumeMode.SNAPSHOT, bookmark, rows)


def _cursor(
    subscriber: Subscriber,
    rows: RowBuild | Sequence[Frame],
    resumed: Resumed | None = None,
    *,
    is_snapshot: bool = False,
) -> RowCursor:
    """Return a cursor over rows; a build runs its first step here, which takes the cut."""
    subscription = subscriber.member.subscription
    build: RowBuild | None = None
    found: Sequence[Frame]
    is_building = False
    if isinstance(rows, RowBuild):
        build = rows
        is_building = not build.begin()
        found = build.rows or ()
    else:
        found = rows
    return RowCursor(
        found,
        subscriber.topic.head,
        is_snapshot=is_snapshot,
        resumed=resumed,
        batch_size=subscription.batch_size,
        shown=shown_as(subscription.lane_id.select),
        build=build,
        is_building=is_building,
    )


# --- Its rows, made in steps; the first step takes the cut of board and journal


def rows_since(topic: Topic, subscription: Subscription, mode: ResumeMode, offset: int) -> RowBuild:
    """Return the rows for a client that has everything up to an offset, by a resume mode."""
    lane_id = subscription.lane_id
    if mode is ResumeMode.REPLAY:
        return replayed(topic, lane_id, offset)
    if mode is ResumeMode.CHANGES:
        return RowBuild(_changes(topic, lane_id, offset))
    return RowBuild(snapshot_rows(topic, subscription))


def replayed(topic: Topic, lane_id: LaneId, offset: int) -> RowBuild:
    """Return the messages of the journal after an offset as the lane would have sent them.

    Equal subscribers share the rows, so they must not be changed.
    """

    def steps() -> Steps[list[Frame]]:
        # Copied only here, where equal readers share the result.
        missed = topic.journal.after(offset)
        yield from pause_before(missed)
        if lane_id.interval_ns:
            key_spec = topic.definition.key_spec
            return (yield from conflate_recorded(missed, lane_id, key_spec, topic.name))
        return (yield from passing(lane_id, topic.name, missed))

    return topic.replays.build(lane_id, offset, topic.head, steps)


def snapshot_rows(topic: Topic, subscription: Subscription) -> Steps[Sequence[Frame]]:
    """Return the present records in the subscription's order, or its window's, or by age."""
    rows = topic.records(subscription.lane_id.feed)
    order, shape = subscription.order, subscription.lane_id.feed.shape
    # A window has its rows in order, nearly always the one that was asked for.
    if order is None or (isinstance(shape, Window) and shape.order == order):
        return rows
    yield from pause_before(rows)
    token = order.sort_token
    size = items_at_once()
    return (yield from sorted_in_steps(rows, lambda row: (token(row.payload), row.key), size))


def merged_since(topic: Topic, lane_id: LaneId, offset: int) -> Steps[Sequence[Frame]]:
    """Return missed messages with the selected fields, conflated as a full queue is.

    All removals are included: the client may have rows from after its bookmark.
    """
    backlog = Backlog(queue_rules(lane_id, topic.definition))
    missed = topic.journal.after(offset)
    yield from pause_before(missed)
    missed = yield from passing(lane_id, topic.name, missed)

    def absorb(piece: Sequence[Frame]) -> tuple[Frame, ...]:
        # As if every key had been there: a client ignores a removal of an unknown key, but would
        # keep a record whose removal it is not sent.
        backlog.absorb(all_shown(shown_as(lane_id.select), piece), lambda *_: True)
        return ()

    yield from in_steps(missed, absorb)
    return backlog.rows()


def _changes(topic: Topic, lane_id: LaneId, offset: int) -> Steps[Sequence[Frame]]:
    """Return the newest record of each conflation key that changed since, oldest first.

    All removals are included: the client may have rows from after its bookmark, also of keys that
    came and went.
    """
    assert topic.sow is not None
    matches = matcher(lane_id.feed.filter, topic.name)
    is_counted = lane_id.counted and topic.journal.dropped_through <= offset
    # The cut: later steps read only these copies of board and journal.
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
    """Return rows with receipts of the messages that they stand for, as the journal has them."""
    counts: dict[str, Receipt] = {}

    def count(piece: Sequence[Frame]) -> tuple[Frame, ...]:
        for frame in piece:
            if not frame.removed:
                now, earlier = receipt_of(frame), counts.get(frame.key)
                counts[frame.key] = now if earlier is None else earlier.then(now)
        return ()

    yield from in_steps(missed, count)
    return [counts[row.key].on(row) if row.key in counts else row for row in rows]
