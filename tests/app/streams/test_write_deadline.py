"""Write deadlines: seconds and bytes as numbers, no clock."""

import pytest

from tidegate.app.streams.connection import CHECK_S_MIN, StreamTimes, WriteDeadline


def over_at(deadline: WriteDeadline, looks: list[tuple[int, bool]]) -> int | None:
    """The second at which it is over, of looks once a second: (mark, closed)."""
    for now_s, (mark, is_closed) in enumerate(looks, 1):
        if deadline.is_over(mark, now_s, is_closed=is_closed):
            return now_s
    return None


@pytest.mark.parametrize(
    ("looks", "second"),
    [
        pytest.param([(100, False)] * 20, 10, id="frozen"),
        pytest.param([(100 - n, False) for n in range(1, 20)], None, id="slow"),
        pytest.param([(99, False)] * 20, 11, id="frozen-after-a-byte"),
        pytest.param([(100, False)] * 4 + [(100, True)] * 9, 7, id="closed-while-frozen"),
        pytest.param([(100 - n, True) for n in range(1, 20)], 3, id="closed-while-slow"),
        pytest.param([(100, False)] * 8 + [(100, True)] * 9, 10, id="closed-shortly-before"),
    ],
)
def test_slow_is_not_frozen_and_a_farewell_is_short(
    looks: list[tuple[int, bool]], second: int | None
) -> None:
    assert over_at(WriteDeadline(10, 100, now_s=0, farewell_s=2), looks) == second


def test_it_looks_often_enough_for_both_and_not_without_end() -> None:
    assert StreamTimes(15, 10, 1).check_s == 0.5
    assert StreamTimes(15, 0.5, 1).check_s == 0.05
    assert StreamTimes(15, 10, 0.001).check_s == CHECK_S_MIN
