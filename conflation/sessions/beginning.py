"""What a new subscription begins with, as an opening; None: with the next message."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.bookmark import Bookmark
from conflation.duration import Instant
from conflation.frame import Frame
from conflation.lane_id import Window
from conflation.lanes.lane import shown_as
from conflation.outputs import Resumed, ResumeMode
from conflation.sessions.opening import Opening
from conflation.sessions.pacing import Pacing
from conflation.sessions.past import Past
from conflation.sessions.resume import is_found, replay_start, replayed, resume_mode, rows_since
from conflation.sessions.session import QueueLimits
from conflation.subscription import Subscription
from conflation.topics.topic import Topic


def begin(
    name: str, topic: Topic, subscription: Subscription, limits: QueueLimits, now: Instant
) -> Opening | None:
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


def go_on(opening: Opening, topic: Topic, subscription: Subscription) -> Opening | None:
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
    opening: Opening, topic: Topic, subscription: Subscription, piece: Sequence[Frame]
) -> Opening:
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


def _resumed(name: str, topic: Topic, subscription: Subscription, limits: QueueLimits) -> Opening:
    bookmark, lane_id = subscription.resume, subscription.lane_id
    assert bookmark is not None
    missed, size = topic.journal.backlog(bookmark.offset)
    too_long = missed > limits.messages_max or size > limits.bytes_max
    mode = resume_mode(topic, lane_id, bookmark, too_long=too_long)
    if mode is ResumeMode.REPLAY and not topic.journal_reaches(bookmark):
        return _from_past(name, topic, subscription, bookmark.offset)
    rows = rows_since(topic, lane_id, mode, bookmark.offset)
    return _continued(name, topic, subscription, mode, bookmark, rows)


def _continued(
    name: str,
    topic: Topic,
    subscription: Subscription,
    mode: ResumeMode,
    bookmark: Bookmark,
    rows: Sequence[Frame],
) -> Opening:
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


def _replay(name: str, topic: Topic, subscription: Subscription, now: Instant) -> Opening:
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


def _from_past(name: str, topic: Topic, subscription: Subscription, start: int) -> Opening:
    """A replay that begins in an archive; its rows come as they are brought."""
    replay = subscription.replay
    since_ms = None if replay is None or not isinstance(replay.start, int) else replay.start
    is_exact = since_ms is None and is_found(topic, subscription)
    gap = topic.head - start if is_exact else None
    resumed = Resumed(name, topic.name, ResumeMode.REPLAY, gap)
    opening = _opening(name, topic, subscription, (), resumed=resumed)
    opening.cut = start
    opening.past = Past.of(topic, subscription.lane_id, start, since_ms)
    return opening


def _opening(
    name: str,
    topic: Topic,
    subscription: Subscription,
    rows: Sequence[Frame],
    *,
    group: bool = False,
    resumed: Resumed | None = None,
) -> Opening:
    return Opening(
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
