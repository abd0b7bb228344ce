"""The recorded timeline: an interval by the messages' own times (rule resume-4)."""

import pytest

from tests.support.rules import rule
from tidegate.conflation.frame import ROWS_AT_ONCE, Frame
from tidegate.conflation.steps import finished
from tidegate.conflation.subscription import FeedId, LaneId
from tidegate.conflation.topics.feed import FORGOTTEN_AT
from tidegate.conflation.topics.recorded import conflate_recorded
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import SECOND

pytestmark = rule("resume-4")


KEY = KeySpec.parse("[/k]")


def conflated(text: str, pace: str, *, leading: bool = False) -> str:
    """`A0 B3` is A at 0 ms and B at 300 ms."""
    frames = [
        Frame(offset, b'{"k":"%s"}' % token[:1].encode(), token[0], int(token[1:]) * 100)
        for offset, token in enumerate(text.split(), start=1)
    ]
    lane_id = LaneId(FeedId(KEY), SECOND, pace, leading)
    rows = finished(conflate_recorded(frames, lane_id, KEY, "px"))
    return " ".join(f"{row.key}{row.timestamp_ms // 100}" for row in rows)


def test_together_the_first_message_opens_the_interval_for_all() -> None:
    assert conflated("A0 B2 A9 A10 B11 A19 C20", "batch") == "B2 A9 B11 A19 C20"


def test_key_by_key_each_has_its_own() -> None:
    assert conflated("A0 B2 A9 A10 B11 A19 C20", "key") == "A9 B11 A19 C20"


def test_a_gap_opens_no_empty_interval() -> None:
    assert conflated("A0 A99", "batch") == conflated("A0 A99", "key") == "A0 A99"


def test_nothing_recorded_is_nothing() -> None:
    assert conflated("", "batch") == conflated("", "key") == ""


@pytest.mark.parametrize("sow_spec", [KEY, KeySpec()])
@pytest.mark.parametrize("count", [ROWS_AT_ONCE + 1, FORGOTTEN_AT + 1])
def test_a_recorded_interval_with_more_keys_than_a_batch_is_whole(
    sow_spec: KeySpec, count: int
) -> None:
    keys = range(count)
    frames = [Frame(at, b'{"k":"%d"}' % key, f'["{key}"]') for at, key in enumerate(keys, 1)]
    rows = finished(conflate_recorded(frames, LaneId(FeedId(KEY), SECOND), sow_spec, "px"))
    assert [row.payload for row in rows] == [frame.payload for frame in frames]


def test_the_fields_of_recorded_rows_are_selected_when_they_are_sent() -> None:
    """A large interval would select those of all its rows at once."""
    frames = [Frame(1, b'{"k":"a","v":1}', '["a"]')]
    lane_id = LaneId(FeedId(KEY), SECOND, select=Select.parse("[-/,+/v]"))
    assert finished(conflate_recorded(frames, lane_id, KEY, "px")) == frames


@rule("resume-8")
def test_it_is_the_lane_that_serves_live_subscriptions() -> None:
    """Whatever the lane can do, a replay does."""
    assert conflated("A0 A1 A2 A30", "key", leading=True) == "A0 A2 A30"
