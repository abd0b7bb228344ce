from __future__ import annotations

from pipeline.operations.backoff import pause_s


def test_pauses_double_from_a_second_to_a_minute() -> None:
    """Rule 580."""
    assert [pause_s(failures, 0) for failures in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pause_s(100_000, 0) == 60


def test_up_to_half_as_much_comes_on_top() -> None:
    assert [pause_s(3, chance) for chance in (0, 0.5, 1)] == [4, 5, 6]
