"""The speed of a replay (rule option-7): three forms, and one spelling for each."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.keys.errors import TextInvalid
from tidegate.keys.text.rate import Rate, parse_rate, rate_text

pytestmark = rule("option-7")


@pytest.mark.parametrize(
    ("text", "rate", "canonical"),
    [
        ("1000", Rate(messages_per_s=1_000), "1000"),
        ("500KB", Rate(bytes_per_s=500_000), "500KB"),
        ("1000kb", Rate(bytes_per_s=1_000_000), "1MB"),
        ("3mB", Rate(bytes_per_s=3_000_000), "3MB"),
        ("1GB", Rate(bytes_per_s=1_000_000_000), "1GB"),
        ("2X", Rate(times=2.0), "2X"),
        ("02.50x", Rate(times=2.5), "2.5X"),
        (".5X", Rate(times=0.5), "0.5X"),
        (".001X", Rate(times=0.001), "0.001X"),
        ("1.125x", Rate(times=1.125), "1.125X"),
    ],
)
def test_a_rate_is_read_and_written(text: str, rate: Rate, canonical: str) -> None:
    assert parse_rate(text) == rate
    assert rate_text(rate) == canonical
    assert parse_rate(canonical) == rate


@pytest.mark.parametrize(
    "text",
    [
        *("", "X", ".X", "2.X", "0", "0X", "0.000X", "0KB", "-1", "1.5", "1.5KB", "1 KB", "1B"),
        *("1KiB", "1000000000", "1000000X", ".0001X", "1e3", "\u0661", "x", "10TB", "2.3456x"),
    ],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected messages a second|above 0"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [("", 0), ("X", 0), ("2.X", 1), ("1.5", 3), ("1.5KB", 3), ("1 KB", 1), ("10TB", 2), ("0X", 0)],
)
def test_a_refusal_says_where_the_text_breaks(text: str, position: int) -> None:
    with pytest.raises(TextInvalid) as refused:
        parse_rate(text, 10)
    assert refused.value.position == 10 + position
