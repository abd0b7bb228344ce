"""Conflation of recorded messages: an interval measured on the timeline of publication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidegate.conflation.frame import Frame, Row
from tidegate.conflation.lane_id import LaneId, Window
from tidegate.conflation.lanes.lane import Lane, whole
from tidegate.conflation.topics.feed import Feed
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant


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


# Estimates: what a lane would have sent of messages that are recorded.


@dataclass(frozen=True, slots=True)
class Estimate:
    """Rows and their payload bytes, over the time from the first message to the last flush.

    Framing and envelopes come on top of the bytes; a delta counts as its patch.
    """

    rows: int
    payload_bytes: int
    duration_ns: int

    @property
    def rows_per_s(self) -> float:
        """Rows a second."""
        return self.rows * SECOND / self.duration_ns

    @property
    def bytes_per_s(self) -> float:
        """Payload bytes a second."""
        return self.payload_bytes * SECOND / self.duration_ns


def estimate(
    frames: Sequence[Frame],
    records: Iterable[Frame],
    lane_id: LaneId,
    sow_spec: KeySpec,
    topic: str,
) -> Estimate | None:
    """Replay messages through a lane of their own on their own timeline; None if no time passed.

    `records`, the state of the world after them, is what a window begins with, as far as it is
    older than the messages; what they replaced is not known any more.
    """
    if not frames:
        return None
    feed = _feed_before(frames[0], records, lane_id, sow_spec, topic)
    begun_ns = frames[0].timestamp_ms * MILLISECOND
    ended_ns = max(frame.timestamp_ms for frame in frames) * MILLISECOND
    rows = payload_bytes = 0
    for flushed_ns, flushed in recorded_flushes(feed, lane_id, frames):
        rows += len(flushed)
        payload_bytes += sum(map(_size, flushed))
        ended_ns = max(ended_ns, flushed_ns)
    return Estimate(rows, payload_bytes, ended_ns - begun_ns) if ended_ns > begun_ns else None


def _feed_before(
    first: Frame, records: Iterable[Frame], lane_id: LaneId, sow_spec: KeySpec, topic: str
) -> Feed:
    feed = Feed(lane_id.feed, sow_spec, topic)
    if isinstance(lane_id.feed.shape, Window):
        feed.seed(record for record in records if record.offset < first.offset)
    feed.board.head = first.offset - 1
    return feed


def _size(frame: Frame) -> int:
    patch = frame.patch if isinstance(frame, Row) else None
    return len(frame.payload if patch is None else patch)
