"""A lane that only has an interval gets its messages when its board is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.manual_driver import make_frames, tokens
from tidegate.conflation.frame import Row
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.subscription import Command, FeedId, LaneId, Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.keys.spec import KeySpec

KEY, OTHER = KeySpec.parse("[/k]"), KeySpec.parse("[/k,/g]")
SECOND = 1_000_000_000
COUNTED = LaneId(FeedId(OTHER), SECOND, counted=True)


def feed_and_lane(lane_id: LaneId = COUNTED) -> tuple[Feed, StatefulLane]:
    feed = Feed(lane_id.feed, KEY, "px")
    lane = feed.lane(lane_id)
    assert isinstance(lane, StatefulLane)
    subscription = Subscription("px", Command.SUBSCRIBE, lane_id)
    lane.join(member := Member("s", "s1", subscription))
    lane.members[member.place] = member
    return feed, lane


def receipts(lane: StatefulLane) -> list[tuple[int, int, int]]:
    assert lane.batch is not None
    rows = [row for row in lane.batch.frames if isinstance(row, Row)]
    return [(row.first, row.offset, row.messages) for row in rows]


def test_it_is_given_nothing_before_its_flush_and_all_then() -> None:
    feed, lane = feed_and_lane()
    assert feed.publish(make_frames("aX1 bX1 aX2"), 5) == [lane]
    assert feed.publish(make_frames("aY3 aX4", first=4), 6) == []
    assert (lane.held(), len(feed.board), feed.is_materialized) == ([], 0, False)
    assert lane.deadline == 5 + SECOND
    assert feed.flush(lane, 5 + SECOND)
    assert lane.batch is not None
    assert tokens(lane.batch.frames) == "bX1 aY3 aX4"
    assert receipts(lane) == [(2, 2, 1), (4, 4, 1), (1, 5, 3)]
    assert lane.deadline is None


def test_the_next_interval_begins_with_the_next_message() -> None:
    feed, lane = feed_and_lane()
    feed.publish(make_frames("aX1"), 0)
    feed.flush(lane, SECOND)
    assert feed.publish(make_frames("aX2", first=2), 3 * SECOND) == [lane]
    feed.materialize()
    assert [entry.due for entry in lane.held()] == [4 * SECOND] == [lane.deadline]


def test_deferred_messages_are_counted() -> None:
    feed, lane = feed_and_lane()
    feed.publish(make_frames("aX1 bX1"), 0)
    accepted, board = feed.preview()
    [member] = lane.members.values()
    assert (accepted, lane.on(board).waiting(member)) == (2, 2)


@pytest.mark.parametrize("beside", [
    replace(COUNTED, pace="key"), LaneId(FeedId(OTHER)), replace(COUNTED, leading=True)
])  # fmt: skip
def test_nothing_is_deferred_beside_a_lane_that_needs_each_message(beside: LaneId) -> None:
    feed, lane = feed_and_lane()
    feed.lane(beside)
    feed.publish(make_frames("aX1"), 0)
    assert len(lane.held()) == len(feed.board) == 1


def test_a_later_lane_that_needs_each_message_ends_the_deferral() -> None:
    feed, lane = feed_and_lane()
    feed.publish(make_frames("aX1"), 0)
    feed.lane(replace(COUNTED, pace="key"))
    feed.publish(make_frames("aX2", first=2), 1)
    [held] = lane.held()
    assert (held.first_offset, held.offset, held.messages, held.due) == (1, 2, 2, SECOND)


def test_what_a_plain_lane_of_the_board_waits_for_stays() -> None:
    feed, lane = feed_and_lane()
    plain = feed.lane(LaneId(FeedId(OTHER), 2 * SECOND))
    feed.publish(make_frames("aX1"), 7)
    feed.flush(lane, 7 + SECOND)
    assert plain.deadline == 7 + 2 * SECOND
