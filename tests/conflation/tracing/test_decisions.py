"""Decisions as they are made from what a lane holds."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Receipt, RemovalReason, Row, Tombstone
from tidegate.conflation.lanes.lane import HeldRow
from tidegate.conflation.subscription import FeedId, LaneId, Window
from tidegate.conflation.tracing.decisions import (
    Decision,
    DecisionKind,
    counted,
    delivered,
    joined,
    of_entry,
    why_filtered,
    why_not_held,
)
from tidegate.keys.filter import Filter
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

FEED = FeedId(KeySpec.of(["/k"]))
FIRST = HeldRow("k", 1, 1, 100, b"1", 1)
SECOND = HeldRow("k", 1, 2, 100, b"2", 2)
FRAME = Frame(2, b"2", "k")
GONE = Tombstone(2, b"1", "k", reason=RemovalReason.EXPIRED)


@rule("trace-3")
@pytest.mark.parametrize(
    ("lane_id", "what", "why"),
    [
        (LaneId(FEED, 1), DecisionKind.REPLACED, ""),
        (LaneId(FEED, 1, delta=True), DecisionKind.MERGED, "delta"),
        (LaneId(FEED, 1, merge=Reduce.parse("[/v:sum]")), DecisionKind.MERGED, "reduced"),
    ],
)
def test_a_second_message_of_a_key(lane_id: LaneId, what: DecisionKind, why: str) -> None:
    assert joined(lane_id, FIRST, SECOND, FRAME, 7) == Decision(
        7, what, "k", 2, earlier=1, messages=2, due=100, why=why
    )


@rule("trace-3")
def test_a_removal_takes_the_place_whatever_the_lane_merges() -> None:
    gone = SECOND._replace(removed=True)
    assert joined(LaneId(FEED, 1, delta=True), FIRST, gone, GONE, 7).what is DecisionKind.REPLACED


def test_messages_are_counted_where_the_lane_does_not() -> None:
    """Only from the first on: of what was held before the trace nobody knows how many it is."""
    entry, first = SECOND._replace(messages=None), FIRST._replace(messages=None)
    assert counted(SECOND, FIRST).messages == 2
    assert counted(entry, None).messages == 1
    assert counted(entry, FIRST).messages == 2
    assert counted(entry, first).messages is None
    assert counted(entry._replace(removed=True), FIRST).messages == 1


def test_only_what_is_held_is_due() -> None:
    assert of_entry(DecisionKind.HELD, FIRST, 7).due == 100
    assert of_entry(DecisionKind.SUPPRESSED, FIRST, 7, why="no change").due is None


@rule("trace-4")
@pytest.mark.parametrize(
    ("row", "first", "messages", "why"),
    [
        (FRAME, None, 1, ""),
        (Row(3, b"3", "k", first=1, messages=3), 1, 3, ""),
        (Row(3, b"3", "k", first=3, patch=b"{}"), None, 1, "delta"),
        (GONE, None, None, "expired"),
        (Receipt(2, 1, 0).on(GONE), 1, 2, "expired"),
    ],
)
def test_a_delivery_says_what_the_row_stands_for(
    row: Frame, first: int | None, messages: int | None, why: str
) -> None:
    told = delivered(row, 7)
    assert (told.earlier, told.messages, told.why) == (first, messages, why)


@rule("trace-3")
def test_why_a_message_is_no_row() -> None:
    filtered = FeedId(FEED.key_spec, Filter.parse("/v > 1"))
    window = FeedId(FEED.key_spec, shape=Window(None, 2))
    assert why_filtered(LaneId(filtered), FRAME) == "filter"
    assert why_filtered(LaneId(filtered), GONE) == "no row"
    assert why_filtered(LaneId(window), FRAME) == "outside the window"


@rule("trace-3")
def test_why_a_row_is_not_held() -> None:
    assert why_not_held(LaneId(FEED, 1), GONE) == "no oof"
    assert why_not_held(LaneId(FEED, 1, oof=True), GONE) == "came and went"
    assert why_not_held(LaneId(FEED, no_empties=True), FRAME) == "no change"
