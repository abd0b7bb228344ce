from __future__ import annotations

from pipeline.definitions.duration import duration_ms


def test_durations_are_whole_milliseconds_or_none() -> None:
    assert duration_ms("1000000ns") == 1
    assert duration_ms("1D") == 86_400_000
    assert [duration_ms(text) for text in ("0s", "1.5s", "-1s", "s", "1", "1w", "999us")] == [
        None
    ] * 7


def test_a_part_of_a_millisecond_counts_as_one() -> None:
    assert duration_ms("1500us") == 2
    assert duration_ms("1000001ns") == 2
    assert duration_ms("2ms") == 2
