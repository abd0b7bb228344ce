from __future__ import annotations

from pipeline.operations.backoff import pause_s


def test_pauses_double_from_a_second_to_a_minute() -> None:
    """Rule 580."""
    assert [pause_s(failures) for failures in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pause_s(100_000) == 60
