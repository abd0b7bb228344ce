"""Rates as the options of a subscription have them."""

from __future__ import annotations

import pytest

from conflation.language.rate import parse_rate as rate_option
from pipeline.definitions.rate import Rate, parse_rate

GOOD = ["1000", "1", "500KB", "500kb", "2MB", "1gb", "10x", "2X", ".5X", "1.125x", "0.25X"]
BAD = ["", "0", "x", "0x", "-1", "1.5", "1.5KB", "10TB", "1 x", "2.3456x", "1e3", "٣", "0KB"]


@pytest.mark.parametrize("text", GOOD)
def test_a_rate_is_what_the_option_says(text: str) -> None:
    found, option = parse_rate(text), rate_option(text)
    assert found == Rate(option.messages_per_s, option.bytes_per_s, option.times)


@pytest.mark.parametrize("text", BAD)
def test_other_texts_are_none(text: str) -> None:
    assert parse_rate(text) is None
    with pytest.raises(ValueError, match=r"a rate is|expected"):
        rate_option(text)
