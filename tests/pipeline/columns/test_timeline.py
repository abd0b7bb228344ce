"""Event time with a watermark; `test_saved.py` holds it against the engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.pipeline.columns.bodies import Newest
from tidegate.pipeline.columns.conflator import PUT, Rows
from tidegate.pipeline.columns.timeline import EARLIEST_NS, Timeline

pytestmark = rule("pipeline-1", "pipeline-2")


def rows(*told: tuple[str, int | None]) -> Rows:
    """Messages of key and time, in order of publication; None is a removal's."""
    count = len(told)
    numbers = np.arange(count)
    times = [EARLIEST_NS if time is None else time for _, time in told]
    return Rows(
        np.array([ord(name) - ord("a") for name, _ in told]), np.array(times), numbers, numbers,
        numbers, numbers, numbers, numbers * 0 + PUT, numbers < 0,
        pa.array([b"%d" % at for at in range(count)], pa.binary()),
    )  # fmt: skip


def taken(lateness: int, *told: tuple[str, int | None]) -> list[tuple[int, int]]:
    """Place and effective time of each message, in the order of taking; the rest at the end."""
    line = Timeline(lateness, Newest())
    found = rows(*told)
    greatest = np.maximum.accumulate(found.times_ns)
    first = line.add(found, greatest, int(greatest[-1]))
    last = line.finish()
    values = [*first.values.to_pylist(), *last.values.to_pylist()]
    return list(zip(map(int, values), [*first.times_ns.tolist(), *last.times_ns.tolist()],
                    strict=True))  # fmt: skip


@rule("pipeline-1", "pipeline-2")
@pytest.mark.parametrize(
    ("lateness", "told", "expected"),
    [
        # Rule pipeline-1: on time within the watermark is in its own place.
        (10, [("a", 100), ("b", 95), ("c", 111)], [(1, 95), (0, 100), (2, 111)]),
        # Rule pipeline-2: what is later counts at the watermark, and is never dropped.
        (10, [("a", 100), ("b", 50), ("c", 95)], [(1, 90), (2, 95), (0, 100)]),
        # Rule pipeline-2: a key does not go back to an older message.
        (10, [("a", 100), ("a", 95), ("b", 97)], [(2, 97), (0, 100), (1, 100)]),
        # Rule pipeline-2: a removal has no time of its own, and counts at the greatest before it.
        (10, [("b", 92), ("a", 100), ("b", None), ("b", 9)],
         [(0, 92), (1, 100), (2, 100), (3, 100)]),
        # Rule pipeline-2: without a watermark this is the recorded clock.
        (0, [("a", 100), ("b", 50), ("c", 120)], [(0, 100), (1, 100), (2, 120)]),
    ],
)  # fmt: skip
def test_messages_are_taken_in_the_order_of_their_effective_times(
    lateness: int, told: list[tuple[str, int | None]], expected: list[tuple[int, int]]
) -> None:
    assert taken(lateness, *told) == expected


def test_after_the_end_nothing_is_earlier() -> None:
    line = Timeline(10, Newest())
    assert len(line.add(rows(("a", 100)), np.array([100]), 100).codes) == 0
    assert line.finish().times_ns.tolist() == [100]
    assert line.add(rows(("b", 95)), np.array([95]), 95).times_ns.tolist() == [100]
