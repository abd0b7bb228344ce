"""What is spelled is parsed to the same options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conflation.options.test_print import option_texts
from tests.support.profiles import examples
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.parse import Options
from tidegate.conflation.options.print import spelled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" oof, conflation = 1000ms ,", "conflation=1s,oof"),
        ("pause,conflation=none", "conflation=none,pause"),
        ("never=[/a='x,y'],skip_n=0,top_n=5", "never=[/a = 'x,y'],top_n=5,skip_n=0"),
        ("rate=2x,rate_max_gap=60s,bookmark=e1-7", "bookmark=e1-7,rate=2X,rate_max_gap=1m"),
    ],
)
def test_options_are_spelled_in_one_way(text: str, expected: str) -> None:
    assert spelled(Options.parse(text)) == expected


@examples(1_000, nightly=50_000)
@given(option_texts())
def test_what_is_spelled_says_the_same(text: str) -> None:
    try:
        options = Options.parse(text)
    except OptionsInvalid:
        return
    assert Options.parse(spelled(options)) == options


@examples(200, nightly=5_000)
@given(option_texts(), option_texts(), st.sampled_from(["", "replace", "resume"]))
def test_so_do_options_laid_over_others(text: str, later: str, act: str) -> None:
    try:
        before = Options.parse(text)
        after = Options.parse(",".join(filter(None, (later, act))), is_change=True)
    except OptionsInvalid:
        return
    both = after.over(before)
    assert Options.parse(spelled(both), is_change=True) == both
