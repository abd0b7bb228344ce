"""Estimates: what a lane would have sent of messages that are recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conflation.duration import MILLISECOND, SECOND
from conflation.frame import Frame, Row
from conflation.lane_id import LaneId, Window
from conflation.topics.feed import Feed
from conflation.topics.recorded import recorded_flushes
from keys.spec import KeySpec


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
