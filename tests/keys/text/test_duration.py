"""Durations as AMPS writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.keys.text.duration import (
    DURATION_MAX,
    MILLISECOND,
    Duration,
    duration_text,
    parse_duration,
    whole_ms,
)


@given(st.integers(0, DURATION_MAX))
def test_the_shortest_spelling_is_exact(duration_ns: int) -> None:
    assert parse_duration(duration_text(duration_ns)) == duration_ns


def test_a_part_of_a_millisecond_counts_as_one() -> None:
    assert [whole_ms(ns) for ns in (0, 1, MILLISECOND, MILLISECOND + 1)] == [0, 1, 1, 2]


def test_a_duration_knows_its_units() -> None:
    duration = Duration.parse("1500ms")
    assert (duration.ns, duration.ms, duration.seconds) == (1_500_000_000, 1500, 1.5)
    assert str(duration) == "1500ms"
    assert Duration.parse("10s") < Duration.parse("1m")
