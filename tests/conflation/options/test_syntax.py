"""How options are written, texts taken apart and values; `test_table.py` has every option."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.syntax import Assignment, assignments, refused
from tidegate.conflation.options.table import FLAGS, TABLE, VALUED, Options
from tidegate.conflation.subscription import NotFound
from tidegate.keys.errors import PathInvalid
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

pytestmark = rule("option-1")

SECOND = 1_000_000_000


def test_options_say_what_was_given_and_nothing_else() -> None:
    options = Options.parse("conflation=1s, oof, conflation_key=[ /a , $.b ]")
    assert options == Options.of(
        conflation=SECOND, oof=True, conflation_key=KeySpec.of(["/a", "/b"])
    )
    assert [name for name in TABLE if name in options.positions] == [
        "conflation",
        "conflation_key",
        "oof",
    ]
    assert (options.positions["oof"], options.positions.get("pace")) == (15, None)


def test_none_is_said_too() -> None:
    assert "conflation" in Options.parse("conflation=none").said
    assert "conflation" not in Options.parse("").said
    assert "oof" not in Options.parse("").said


def test_options_lie_over_others_one_by_one() -> None:
    topics = Options.parse("conflation=1s,pace=key,oof,batch_size=7")
    own = Options.parse("conflation=none,batch_size=9,timestamp")
    assert own.over(topics) == Options.parse("conflation=none,batch_size=9,timestamp,pace=key,oof")
    assert "pace" not in own.over(topics).positions
    assert own.over(Options()) == own
    assert topics.without("oof").without("pace") == Options.parse("conflation=1s,batch_size=7")


def test_a_projection_and_its_grouping_are_one() -> None:
    text = "grouping=[/a],projection=[SUM(/q) AS /t]"
    projection = Options.parse(text).projection
    assert projection is not None
    assert str(projection) == "projection=[SUM(/q) AS /t],grouping=[/a]"
    assert "grouping" in Options.parse(text).positions


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("conflaton", "; the nearest known one is conflation"),
        ("offo", "; the nearest known one is oof"),
        ("skipn", "; the nearest known one is skip_n"),
        ("maxage", "; the nearest known one is max_age"),
        (
            "fully_durable",
            ", one of AMPS without a counterpart here: see docs/coming-from/amps.md",
        ),
        ("fully_durabl", ""),
    ],
)
def test_an_unknown_name_is_shown_with_the_nearest_as_a_hint(name: str, hint: str) -> None:
    with pytest.raises(OptionsInvalid) as refused:
        Options.parse(f"oof,{name}=1")
    assert (refused.value.detail, refused.value.position) == (f"unknown option {name}{hint}", 4)


def test_a_long_unknown_name_is_cut_where_it_is_shown() -> None:
    with pytest.raises(OptionsInvalid) as refused:
        Options.parse("z" * 4_000)
    assert refused.value.detail == f"unknown option {'z' * 32}…"


def test_a_change_knows_more() -> None:
    assert Options.parse("resume", is_change=True).resume
    assert Options.parse("replace,pause", is_change=True).replace
    with pytest.raises(OptionsInvalid):
        Options.parse("resume")


@examples(50)
@given(
    st.lists(
        st.sampled_from(
            [
                *TABLE,
                "=",
                ",",
                "[",
                "]",
                "/a",
                "1s",
                "'",
                '"',
                "\\",
                " ",
                "auto",
                "1",
                "$",
            ]
        ),
        max_size=12,
    ).map("".join)
)
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        Options.parse(text)
    except OptionsInvalid as error:
        refused = error
    else:
        return
    assert refused.position is not None
    assert 0 <= refused.position <= len(text)
    assert len(refused.detail) < 200


# Assignments: names, values, and where each stands.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t", []),
        ("a", [("a", 0, None, 1)]),
        ("a,b", [("a", 0, None, 1), ("b", 2, None, 3)]),
        ("a=1,", [("a", 0, "1", 2)]),
        (" a = 1 , b ,\t", [("a", 1, "1", 5), ("b", 9, None, 10)]),
        ("a=", [("a", 0, "", 2)]),
        ("a==1", [("a", 0, "=1", 2)]),
        ("a=[x,[y,z]],b", [("a", 0, "[x,[y,z]]", 2), ("b", 12, None, 13)]),
        ("a=['],',\"]\"],b", [("a", 0, "['],',\"]\"]", 2), ("b", 13, None, 14)]),
        (r"a=['\'],'],b", [("a", 0, r"['\'],']", 2), ("b", 11, None, 12)]),
        ("a=[[/o'clock,[] = 1],b", [("a", 0, "[[/o'clock,[] = 1]", 2), ("b", 21, None, 22)]),
        ("a='1,b", [("a", 0, "'1", 2), ("b", 5, None, 6)]),
        ("a=1],b", [("a", 0, "1]", 2), ("b", 5, None, 6)]),
    ],
)
def test_parts_have_names_values_and_places(
    text: str, expected: list[tuple[str, int, str | None, int]]
) -> None:
    assert list(assignments(text)) == [Assignment(*part) for part in expected]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (",", 0),
        (" ,a", 1),
        ("a,,", 2),
        ("a,,b", 2),
        ("=1", 0),
        ("A", 0),
        ("a, b-c", 3),
        ("a b=1", 0),
        ("a=[", 2),
        ("a,b=[[x]", 4),
        ("a=['x]", 3),
        ("a=[b, \"x]'", 6),
    ],
)
def test_what_is_no_part_is_refused_with_its_place(text: str, position: int) -> None:
    with pytest.raises(OptionsInvalid) as refused:
        list(assignments(text))
    assert refused.value.position == position


@examples(50)
@given(st.text(alphabet="ab=,[]/'\"\\ x\u00e9", max_size=30))
def test_places_are_those_in_the_text(text: str) -> None:
    try:
        found = list(assignments(text))
    except OptionsInvalid as error:
        refused = error
        assert refused.position is not None
        assert 0 <= refused.position <= len(text)
        return
    for name, at, value, value_at in found:
        assert text.startswith(name, at)
        assert text.startswith(value or "", value_at)


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_stands_alone(name: str) -> None:
    assert TABLE[name].read(None, 0) is True
    for value in ("", "true", "1"):
        with pytest.raises(OptionsInvalid, match=f"{name}: it takes no value") as no:
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
