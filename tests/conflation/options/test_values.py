"""The values of options, one syntax for each kind; flags stand alone. `test_table.py` has all."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.parse import refused
from tidegate.conflation.options.table import FLAGS, TABLE, VALUED
from tidegate.conflation.subscription import NotFound
from tidegate.keys.errors import PathInvalid
from tidegate.keys.text.bookmark import Bookmark

pytestmark = rule("option-1")


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_stands_alone(name: str) -> None:
    assert TABLE[name].read(None, 0) is True
    for value in ("", "true", "1"):
        with pytest.raises(OptionsInvalid, match=f"{name}: it stands alone") as no:
            TABLE[name].read(value, 9)
        assert no.value.position == 9


@pytest.mark.parametrize("name", VALUED)
def test_the_others_have_a_value(name: str) -> None:
    with pytest.raises(OptionsInvalid, match=f"{name}: expected = and a value") as no:
        TABLE[name].read(None, 9)
    assert no.value.position == 9


@pytest.mark.parametrize("name", sorted(set(VALUED) - {"projection", "grouping"}))
def test_no_reader_takes_an_empty_value(name: str) -> None:
    with pytest.raises(OptionsInvalid, match=f"^{name}: "):
        TABLE[name].read("", 9)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("conflation", "none", 0),
        ("conflation", "auto", "auto"),
        ("conflation", "1s", 1_000_000_000),
        ("bookmark", "epoch", "epoch"),
        ("bookmark", "e1-7", Bookmark("e1", 7)),
        ("bookmark", "1970-01-01T00:00:01Z", 1_000),
        ("bookmark_not_found", "fail", NotFound.FAIL),
        ("top_n", "007", 7),
    ],
)
def test_what_values_say(name: str, text: str, value: object) -> None:
    assert TABLE[name].read(text, 0) == value


@pytest.mark.parametrize("text", ["1w", "0W", "2w"])
@pytest.mark.parametrize("name", ["conflation", "max_age", "rate_max_gap"])
def test_weeks_are_a_unit_of_which_no_duration_of_an_option_is_made(name: str, text: str) -> None:
    with pytest.raises(OptionsInvalid, match="weeks are for a topic's expiration and history"):
        TABLE[name].read(text, 0)


def test_a_refusal_has_the_inner_place_if_there_is_one() -> None:
    assert refused("x", PathInvalid("no path", 7), 3).position == 7
    assert refused("x", ValueError("no path"), 3).position == 3
    assert refused("x", ValueError("no path"), 3).detail == "x: no path"
