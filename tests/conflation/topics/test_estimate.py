"""What a lane would have sent, reckoned from recorded messages."""

from __future__ import annotations

import json

import pytest

from tidegate.conflation.definition import Definition, History
from tidegate.conflation.frame import Frame, Tombstone
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.topics.recorded import Estimate, estimate
from tidegate.keys.spec import KeySpec

SECOND = 1_000_000_000
KEY = KeySpec.parse("[/k]")
ROW = {"k": 1, "v": 10, "text": "x" * 100}
SIZE = len(json.dumps(ROW))


def recorded(count: int, every_ms: int, keys: int = 1) -> list[Frame]:
    """Messages at equal distances, one key after the other, from offset 11 on."""
    return [
        Frame(
            11 + at,
            json.dumps(ROW | {"k": at % keys, "v": 10 + at % 2}).encode(),
            f"[{at % keys}]",
            5_000 + at * every_ms,
        )
        for at in range(count)
    ]


def estimated(
    frames: list[Frame],
    text: str,
    records: tuple[Frame, ...] = (),
    command: str | None = None,
    filter_text: str = "",
    order_text: str = "",
) -> Estimate | None:
    definition, options = Definition(History(1), KEY), Options.parse(text)
    wanted = decide(
        *("px", definition, options),
        command=command,
        filter_text=filter_text,
        order_text=order_text,
    )
    return estimate(frames, records, wanted.lane_id, KEY, "px")


def test_every_message_at_its_own_pace() -> None:
    found = estimated(recorded(101, every_ms=100), "")
    assert found == Estimate(101, 101 * SIZE, 10 * SECOND)
    assert found.rows_per_s == pytest.approx(10.1)
    assert found.bytes_per_s == pytest.approx(10.1 * SIZE)


def test_an_interval_has_each_key_once() -> None:
    """Ten intervals of two keys: the time runs until the last flush."""
    found = estimated(recorded(100, every_ms=100, keys=2), "conflation=1s")
    assert found == Estimate(20, 20 * SIZE, 10 * SECOND)


def test_a_short_recording_does_not_make_an_interval_faster() -> None:
    found = estimated(recorded(100, every_ms=1), "conflation=10s")
    assert found == Estimate(1, SIZE, 10 * SECOND)


def test_a_filter_leaves_out() -> None:
    found = estimated(recorded(10, every_ms=100), "", filter_text="/v = 11")
    assert found == Estimate(5, 5 * SIZE, SECOND * 9 // 10)


def test_a_delta_counts_as_its_patch() -> None:
    """But for the first message of a key, which nobody knows what it replaced."""
    found = estimated(recorded(10, every_ms=100), "", command="delta_subscribe")
    assert found is not None
    assert found.payload_bytes == SIZE + 9 * len('{"k":0,"v":10}')


def test_a_window_begins_with_the_records_that_are_older() -> None:
    older = Frame(3, b'{"k":7,"v":99}', "[7]", 1_000)
    frames = recorded(10, every_ms=100)
    bare = estimated(frames, "top_n=1", order_text="/v DESC")
    seeded = estimated(frames, "top_n=1", (older, frames[-1]), order_text="/v DESC")
    assert bare is not None
    assert seeded is not None
    assert (bare.rows, seeded.rows) == (10, 0)


def test_removals_count_where_they_are_told() -> None:
    frames = recorded(2, every_ms=100)
    gone = Tombstone(13, frames[-1].payload, "[0]", 6_000)
    assert estimated([*frames, gone], "oof") == Estimate(3, 3 * SIZE, SECOND)
    assert estimated([*frames, gone], "") == Estimate(2, 2 * SIZE, SECOND)


@pytest.mark.parametrize("text", ["oof,top_n=1", "projection=[SUM(/v) AS /s],grouping=[/k]"])
def test_windows_and_groups(text: str) -> None:
    found = estimated(recorded(10, every_ms=100), f"conflation=1s,{text}")
    assert found is not None
    assert (found.rows, found.duration_ns) == (1, SECOND)


def test_where_no_time_passed_there_is_no_rate() -> None:
    assert estimated([], "") is None
    assert estimated(recorded(5, every_ms=0), "") is None
    assert estimated(recorded(5, every_ms=0), "conflation=1s") is not None
