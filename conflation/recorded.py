"""Conflation of recorded messages: an interval measured on the timeline of publication."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.duration import MILLISECOND
from conflation.feed import Feed
from conflation.frame import Frame
from conflation.lane import whole
from conflation.lane_id import LaneId
from keys.spec import KeySpec


def conflate_recorded(
    frames: Sequence[Frame], lane_id: LaneId, sow_spec: KeySpec, topic: str
) -> list[Frame]:
    """What a lane would have let through, told by the messages' own times.

    As in AMPS a fast replay with `1s` has one message per key and *recorded* second. The lane is
    the very one that serves live subscriptions, under a clock that shows the recorded time.
    """
    feed = Feed(lane_id.feed, sow_spec, topic)
    lane = feed.lane(lane_id)
    rows: list[Frame] = []
    now = 0
    for frame in frames:
        now = max(now, frame.timestamp_ms * MILLISECOND)
        while lane.deadline is not None and lane.deadline <= now:
            _flush(feed, rows, lane_id)
        feed.publish([frame], now)
    while lane.deadline is not None:
        _flush(feed, rows, lane_id)
    return rows


def _flush(feed: Feed, rows: list[Frame], lane_id: LaneId) -> None:
    lane = feed.lanes[lane_id]
    assert lane.deadline is not None
    feed.settle()
    if lane.flush(lane.deadline) and lane.batch is not None:
        rows += whole(lane.batch.frames)
    feed.listen(lane)
