"""Late rows: which rows are late, and the cause that is sent."""

from __future__ import annotations

import json

import pytest

from tidegate.app.streams.encoding import Format, Style, Styles
from tidegate.app.streams.notices import Cause, WriteContext, cause_of, late_events
from tidegate.clients.sse import Parser
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Batch, Frame, Row
from tidegate.conflation.outputs import GroupBegin, Output, Rows
from tidegate.conflation.subscription import Command, FeedId, LaneId, Shown, Subscription
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND

NOW_MS = 10_000
QUIET = WriteContext(NOW_MS, has_unsent=False, is_behind=False, arrival_ages_ms={})


def styles(max_age_ms: int | None = 500) -> Styles:
    max_age_ns = None if max_age_ms is None else max_age_ms * MILLISECOND
    lane_id = LaneId(FeedId(KeySpec()), MILLISECOND)
    wanted = Subscription("px", Command.SUBSCRIBE, lane_id, shown=Shown(max_age_ns=max_age_ns))
    return {("s1", "px"): Style(Format.VALUE, Kind.JSON, wanted, Bookmark("e1", 3))}


def rows(*frames: Frame) -> Rows:
    return Rows("s1", "px", "e1", "publish", Batch(frames, 0, 9, None))


def told(
    *outputs: Output, max_age_ms: int | None = 500, write_context: WriteContext = QUIET
) -> list[object]:
    flow = b"".join(late_events(outputs, styles(max_age_ms), write_context))
    read = Parser().feed(flow)
    assert all(one.name == "late" for one in read)
    return [json.loads(one.text) for one in read]


def test_a_row_is_as_old_as_its_first_message() -> None:
    row = Row(9, b"1", "", NOW_MS, first=8, first_ms=NOW_MS - 700, messages=2)
    assert told(rows(row)) == [{"sub": "s1", "age_ms": 700, "cause": "gateway"}]


def test_the_oldest_of_all_rows_is_told_once() -> None:
    batches = [rows(Frame(n, b"1", "", NOW_MS - 500 - n)) for n in range(4, 8)]
    assert told(*batches) == [{"sub": "s1", "age_ms": 507, "cause": "gateway"}]


def test_what_keeps_the_promise_is_not_told() -> None:
    assert told(rows(Frame(9, b"1", "", NOW_MS - 500))) == []
    assert told() == []


def test_nobody_is_told_who_did_not_ask() -> None:
    assert told(rows(Frame(9, b"1", "", 0)), max_age_ms=None) == []


def test_an_opening_is_old_by_nature() -> None:
    assert told(GroupBegin("s1", "px", 1), rows(Frame(3, b"1", "", 0))) == []


@pytest.mark.parametrize(
    ("has_unsent", "is_behind", "arrival_ms", "cause"),
    [
        (True, True, 900, Cause.CLIENT),
        (False, True, 900, Cause.QUEUE),
        (False, False, 900, Cause.SOURCE),
        (False, False, 500, Cause.GATEWAY),
    ],
)
def test_the_cause_nearest_to_the_peer_is_told(
    has_unsent: bool, is_behind: bool, arrival_ms: int, cause: Cause
) -> None:
    write_context = WriteContext(NOW_MS, has_unsent, is_behind, {"px": arrival_ms})
    assert cause_of(write_context, "px", 500 * MILLISECOND) is cause
    assert cause_of(write_context, "other", 500 * MILLISECOND) is not Cause.SOURCE
