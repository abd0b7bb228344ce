"""Durations as AMPS writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflation.duration import DAY, MILLISECOND, SECOND, duration_text, parse_duration


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


@given(st.integers(0, 10**19))
def test_the_shortest_spelling_is_exact(duration_ns: int) -> None:
    assert parse_duration(duration_text(duration_ns)) == duration_ns


@pytest.mark.parametrize(
    ("duration_ns", "text"), [(1_500 * MILLISECOND, "1500ms"), (60 * SECOND, "1m"), (0, "0ns")]
)
def test_durations_are_told_in_the_largest_unit_that_fits(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text
