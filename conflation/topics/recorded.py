"""Conflation of recorded messages: an interval measured on the timeline of publication."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conflation.duration import MILLISECOND, Instant
from conflation.frame import Frame
from conflation.lane_id import LaneId
from conflation.lanes.lane import Lane, whole
from conflation.topics.feed import Feed
from keys.spec import KeySpec


def conflate_recorded(
    frames: Sequence[Frame], lane_id: LaneId, sow_spec: KeySpec, topic: str
) -> list[Frame]:
    """What a lane would have let through, told by the messages' own times.

    As in AMPS a fast replay with `1s` has one message per key and *recorded* second. The lane is
    the very one that serves live subscriptions, under a clock that shows the recorded time.
    """
    flushes = recorded_flushes(Feed(lane_id.feed, sow_spec, topic), lane_id, frames)
    return [row for _, rows in flushes for row in whole(rows)]


def recorded_flushes(
    feed: Feed, lane_id: LaneId, frames: Sequence[Frame]
) -> Iterator[tuple[Instant, Sequence[Frame]]]:
    """When a lane of this feed lets recorded messages go, and the rows of each flush."""
    recording = Recording(feed, lane_id)
    yield from recording.take(frames)
    yield from recording.end()


class Recording:
    """A lane under a clock that shows recorded times; messages may come piece by piece."""

    def __init__(self, feed: Feed, lane_id: LaneId) -> None:
        self._feed = feed
        self._lane = feed.lane(lane_id)
        self._now: Instant = 0

    def take(self, frames: Sequence[Frame]) -> Iterator[tuple[Instant, Sequence[Frame]]]:
        """Messages that follow; the flushes that are due until the last of them."""
        feed, lane = self._feed, self._lane
        for frame in frames:
            self._now = max(self._now, frame.timestamp_ms * MILLISECOND)
            while lane.deadline is not None and lane.deadline <= self._now:
                yield lane.deadline, _flush(feed, lane)
            feed.publish([frame], self._now)

    def end(self) -> Iterator[tuple[Instant, Sequence[Frame]]]:
        """Nothing follows: the flushes of what is still held."""
        while self._lane.deadline is not None:
            yield self._lane.deadline, _flush(self._feed, self._lane)


def _flush(feed: Feed, lane: Lane) -> Sequence[Frame]:
    assert lane.deadline is not None
    feed.settle()
    has_rows = lane.flush(lane.deadline)
    feed.listen(lane)
    return lane.batch.frames if has_rows and lane.batch is not None else ()
