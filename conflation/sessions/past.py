"""A replay that begins before the journal does: what is older comes from an archive, in pieces.

The engine says what it wants, as an event; the shell brings it when it has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from conflation.boards.screen import matcher
from conflation.duration import Instant
from conflation.frame import Frame
from conflation.lane_id import LaneId
from conflation.lanes.lane import whole
from conflation.topics.feed import Feed
from conflation.topics.recorded import Recording
from conflation.topics.topic import Topic


@dataclass(slots=True, eq=False)
class Past:
    """How far a replay has got in the archive, and what it holds of an open interval.

    `after`: up to here everything has come. `since_ms`: what is older at the beginning is no part
    of it. `asked`: the next piece is on its way.
    """

    after: int
    since_ms: int | None = None
    recording: Recording | None = None
    asked: bool = False

    @classmethod
    def of(cls, topic: Topic, lane_id: LaneId, after: int, since_ms: int | None = None) -> Past:
        """Of a replay behind an offset; an interval is measured over all its pieces."""
        feed = Feed(lane_id.feed, topic.definition.key_spec, topic.name)
        return cls(after, since_ms, Recording(feed, lane_id) if lane_id.interval_ns else None)

    def rows(self, topic: Topic, lane_id: LaneId, piece: Sequence[Frame]) -> Sequence[Frame]:
        """What the lane tells of the messages that follow."""
        self.after, self.asked = piece[-1].offset, False
        if self.since_ms is not None:
            since_ms = self.since_ms
            piece = list(dropwhile(lambda frame: frame.timestamp_ms < since_ms, piece))
            self.since_ms = None if piece else since_ms
        if self.recording is not None:
            return _told(self.recording.take(piece))
        return passing(topic, lane_id, piece)

    def rest(self, topic: Topic, lane_id: LaneId) -> Sequence[Frame]:
        """What it tells of the journal, which goes on here, and of what it still holds."""
        missed = topic.journal.after(self.after)
        rows = list(self.rows(topic, lane_id, missed)) if missed else []
        return rows if self.recording is None else rows + _told(self.recording.end())


def passing(topic: Topic, lane_id: LaneId, frames: Sequence[Frame]) -> list[Frame]:
    """Of messages, each to be told, those that are for the lane."""
    matches = matcher(lane_id.feed.filter, topic.name)
    return [
        frame
        for frame in frames
        if (lane_id.oof if frame.removed else matches is None or matches(frame.payload, frame.key))
    ]


def _told(flushes: Iterable[tuple[Instant, Sequence[Frame]]]) -> list[Frame]:
    return [row for _, rows in flushes for row in whole(rows)]
