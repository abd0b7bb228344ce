"""Durations as AMPS writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.keys.errors import TextInvalid
from tidegate.keys.text.duration import (
    DAY,
    DURATION_MAX,
    MILLISECOND,
    SECOND,
    Duration,
    duration_text,
    parse_duration,
    parse_interval,
    whole_ms,
)


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1ns", 1),
        ("1us", 1_000),
        ("250ms", 250 * MILLISECOND),
        ("1s", SECOND),
        ("2M", 120 * SECOND),
        ("1h", 3_600 * SECOND),
        ("1D", DAY),
        ("1w", 7 * DAY),
        ("500MS", 500 * MILLISECOND),
        ("007s", 7 * SECOND),
    ],
)
def test_an_integer_and_a_unit_in_any_case(text: str, expected_ns: int) -> None:
    assert parse_duration(text) == expected_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "1",
        "-1s",
        "+1s",
        "1.5s",
        "1 s",
        " 1s",
        "1s ",
        "1s\n",
        "1sec",
        "1e3ms",
        "\u0661s",
        "1_0ms",
        "0x1s",
        "1\u017f",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="integer and a unit"):
        parse_duration(text)


@given(st.integers(0, DURATION_MAX))
def test_the_shortest_spelling_is_exact(duration_ns: int) -> None:
    assert parse_duration(duration_text(duration_ns)) == duration_ns


@pytest.mark.parametrize(
    ("duration_ns", "text"), [(1_500 * MILLISECOND, "1500ms"), (60 * SECOND, "1m"), (0, "0ns")]
)
def test_durations_are_printed_in_the_largest_unit_that_fits(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text


def test_what_is_longer_than_a_century_is_refused() -> None:
    assert parse_duration("36500d") == DURATION_MAX
    for text in ("36501d", "99999999999999999999w", f"{DURATION_MAX + 1}ns"):
        with pytest.raises(ValueError, match="at most 36500d"):
            parse_duration(text)


@pytest.mark.parametrize(
    ("text", "position"), [("", 0), ("s", 0), ("15", 2), ("15 s", 2), ("1.5s", 1), ("1\u017f", 1)]
)
def test_a_refusal_says_where_the_text_breaks(text: str, position: int) -> None:
    with pytest.raises(TextInvalid) as refused:
        parse_duration(text, 10)
    assert refused.value.position == 10 + position


def test_an_interval_is_from_a_millisecond_to_a_day() -> None:
    assert [parse_interval(text) for text in ("1000000ns", "1D")] == [MILLISECOND, DAY]
    for text in ("0s", "999us", "1w", "86400001ms"):
        with pytest.raises(TextInvalid, match="1ms to 1d"):
            parse_interval(text)


def test_a_part_of_a_millisecond_counts_as_one() -> None:
    assert [whole_ms(ns) for ns in (0, 1, MILLISECOND, MILLISECOND + 1)] == [0, 1, 1, 2]


def test_a_duration_knows_its_units() -> None:
    duration = Duration.parse("1500ms")
    assert (duration.ns, duration.ms, duration.seconds) == (1_500_000_000, 1500, 1.5)
    assert str(duration) == "1500ms"
    assert Duration.parse("10s") < Duration.parse("1m")
