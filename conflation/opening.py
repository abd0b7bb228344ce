"""What a subscriber is owed when it joins: a snapshot, or what it missed since a bookmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conflation.bookmark import Bookmark
from conflation.definition import QueuePolicy
from conflation.feed import rows_of
from conflation.frame import Batch, Frame, prefix_within
from conflation.outputs import GroupBegin, GroupEnd, Output, Resumed, ResumeMode, Rows
from conflation.recorded import conflate_recorded
from conflation.subscription import Command, LaneId, Subscription
from conflation.topic import Topic
from keys.extract import conflation_key

ROWS_MAX = 100


@dataclass(slots=True)
class Opening:
    """Rows kept as references, an exact cut; pulled as the socket drains, never queued.

    In a group they are snapshot rows and replace what the client holds; else they continue
    from its bookmark.
    """

    name: str
    topic: str
    epoch: str
    rows: Sequence[Frame]
    cut: int
    group: bool
    resumed: Resumed | None = None
    sent: int = 0
    begun: bool = False
    done: bool = False

    def take(self, bytes_max: int) -> list[Output]:
        """The next outputs, about `bytes_max` of payload; `done` once the last is out."""
        outputs = [] if self.begun else self._begin()
        self.begun = True
        rows = self.rows[self.sent : self.sent + ROWS_MAX]
        rows = rows[: prefix_within(rows, bytes_max)]
        since, self.sent = self.sent, self.sent + len(rows)
        self.done = self.sent == len(self.rows)
        if rows:
            low_water = self.cut if self.done and not self.group else None
            batch = Batch(rows, since, self.sent, low_water)
            op = "snapshot" if self.group else "publish"
            outputs.append(Rows(self.name, self.topic, self.epoch, op, batch))
        if self.done and self.group:
            bookmark = str(Bookmark(self.epoch, self.cut))
            outputs.append(GroupEnd(self.name, len(self.rows), bookmark))
        return outputs

    def _begin(self) -> list[Output]:
        outputs: list[Output] = [self.resumed] if self.resumed else []
        if self.group:
            outputs.append(GroupBegin(self.name, len(self.rows)))
        return outputs


def open_with(
    name: str,
    topic: Topic,
    subscription: Subscription,
    *,
    queue_messages_max: int,
    queue_bytes_max: int,
) -> Opening | None:
    """What a new subscription of this topic starts with; None: with the next message.

    The cut is the topic's head at this very call, so snapshot and live rows have neither gap
    nor overlap. A replay beyond the session's limits is conflated where the topic allows it.
    """
    bookmark = subscription.resume
    if bookmark is not None:
        missed, size = topic.journal.backlog(bookmark.offset)
        too_long = missed > queue_messages_max or size > queue_bytes_max
        mode = resume_mode(topic, subscription, bookmark, too_long=too_long)
        rows = _resume_rows(topic, subscription.lane_id, mode, bookmark)
        gap = topic.head - bookmark.offset if bookmark.epoch == topic.epoch else None
        resumed = Resumed(name, mode, gap if gap is None or gap >= 0 else None)
        group = mode is ResumeMode.SNAPSHOT
        return Opening(name, topic.name, topic.epoch, rows, topic.head, group, resumed)
    if subscription.command is Command.SUBSCRIBE:
        return None
    return Opening(name, topic.name, topic.epoch, _snapshot(topic), topic.head, group=True)


def resume_mode(
    topic: Topic, subscription: Subscription, bookmark: Bookmark, *, too_long: bool
) -> ResumeMode:
    """The first way that fits; `too_long`: a replay would be over the session's limits."""
    continues = bookmark.epoch == topic.epoch and bookmark.offset <= topic.head
    by_record = topic.sow is not None and bookmark.offset >= topic.sow.board.horizon
    lane_id = subscription.lane_id
    if not continues:
        return ResumeMode.SNAPSHOT
    of_key_fields = set(lane_id.key_spec.paths) <= set(topic.definition.key_spec.paths)
    if lane_id.interval_ns and by_record and of_key_fields:
        return ResumeMode.CHANGES
    if topic.journal_reaches(bookmark):
        if lane_id.interval_ns:
            return ResumeMode.REPLAY
        conflates = topic.definition.policy is QueuePolicy.CONFLATE
        if not (too_long and conflates and by_record):
            return ResumeMode.REPLAY
        return ResumeMode.CHANGES
    return ResumeMode.SNAPSHOT


def _resume_rows(
    topic: Topic, lane_id: LaneId, mode: ResumeMode, bookmark: Bookmark
) -> Sequence[Frame]:
    if mode is ResumeMode.REPLAY:
        missed = topic.journal.after(bookmark.offset)
        if not lane_id.interval_ns:
            return missed
        row_of = rows_of(lane_id.key_spec, topic.definition.key_spec)
        recorded = [row_of(frame) for frame in missed]
        return conflate_recorded(recorded, lane_id.interval_ns, lane_id.pace)
    if mode is ResumeMode.CHANGES and topic.sow is not None:
        changes = topic.sow.board.changes(bookmark.offset)
        return _newest([frame for frame in changes if not frame.removed], topic, lane_id)
    return _snapshot(topic)


def _newest(changed: list[Frame], topic: Topic, lane_id: LaneId) -> list[Frame]:
    """The newest record of each conflation key, oldest first."""
    if lane_id.key_spec == topic.definition.key_spec:
        return changed
    key_of = conflation_key(lane_id.key_spec)
    newest = {key_of(frame.payload): frame for frame in changed}
    return sorted(newest.values(), key=lambda frame: frame.offset)


def _snapshot(topic: Topic) -> Sequence[Frame]:
    return topic.sow.board.live() if topic.sow is not None else []
