"""The options language as a whole; `test_options_table.py` has every option."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.parse import Options
from tidegate.conflation.options.readers import FLAGS, READERS
from tidegate.keys.spec import KeySpec

SECOND = 1_000_000_000


def test_options_say_what_was_given_and_nothing_else() -> None:
    options = Options.parse("conflation=1s, oof, conflation_key=[ /a , $.b ]")
    assert options == Options(conflation=SECOND, oof=True, conflation_key=KeySpec.of(["/a", "/b"]))
    assert [name for name in (*READERS, *FLAGS) if options.given(name)] == [
        "conflation",
        "conflation_key",
        "oof",
    ]
    assert (options.position("oof"), options.position("pace")) == (15, None)


def test_none_is_said_too() -> None:
    assert Options.parse("conflation=none").says("conflation")
    assert not Options.parse("").says("conflation")
    assert not Options.parse("").says("oof")


def test_options_lie_over_others_one_by_one() -> None:
    topics = Options.parse("conflation=1s,pace=key,oof,batch_size=7")
    own = Options.parse("conflation=none,batch_size=9,timestamp")
    assert own.over(topics) == Options.parse("conflation=none,batch_size=9,timestamp,pace=key,oof")
    assert own.over(topics).position("pace") is None
    assert own.over(Options()) == own
    assert topics.without("oof").without("pace") == Options.parse("conflation=1s,batch_size=7")


def test_a_projection_and_its_grouping_are_one() -> None:
    text = "grouping=[/a],projection=[SUM(/q) AS /t]"
    projection = Options.parse(text).projection
    assert projection is not None
    assert str(projection) == "projection=[SUM(/q) AS /t],grouping=[/a]"
    assert Options.parse(text).given("grouping")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("conflaton", "; the nearest known one is conflation"),
        ("offo", "; the nearest known one is oof"),
        ("skipn", "; the nearest known one is skip_n"),
        ("maxage", "; the nearest known one is max_age"),
        ("fully_durable", ""),
        ("z" * 4_000, ""),
    ],
)
def test_an_unknown_name_gets_the_nearest_as_a_hint(name: str, hint: str) -> None:
    with pytest.raises(OptionsInvalid) as refused:
        Options.parse(f"oof,{name}=1")
    assert (refused.value.detail, refused.value.position) == (f"unknown option{hint}", 4)


def test_a_change_knows_more() -> None:
    assert Options.parse("resume", is_change=True).resume
    assert Options.parse("replace,pause", is_change=True).replace
    with pytest.raises(OptionsInvalid):
        Options.parse("resume")


@examples(500, nightly=20_000)
@given(
    st.lists(
        st.sampled_from(
            [
                *READERS,
                *FLAGS,
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
