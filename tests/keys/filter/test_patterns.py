"""Regular expressions are RE2's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Expression
from tidegate.keys.filter.patterns import compiled


@rule("filter-13")
def test_patterns_search_characters() -> None:
    assert compiled("^.$").search("\u00e9".encode())


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "x{1001}", "((x{99}){99}){99}"])
def test_what_is_not_linear_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(FilterInvalid) as refused:
        compiled(pattern, 5)
    assert refused.value.position == 5


PIECES = (
    *("a", "b", "\u00e9", ".", "a*", "^", "$", "[^a]", "[^\\n]", "\\s", "\\W", "\\b", "\\B", "\\n"),
    *("(?s:.)", "(?i:A)", "(a|^b)", "(b$|a)", "[a^]", "\\^", "\\$", "[[:^alpha:]]", "\\A", "\\z"),
)


@rule("filter-4")
@examples(30)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join),
    st.lists(st.text("ab\u00e9 A\n", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_one_search_in_all_texts_answers_as_one_in_each(pattern: str, texts: list[str]) -> None:
    expression = Expression.parse(f"/l LIKE r'{pattern}'").evaluator()
    alone = compiled(pattern).search
    expected = any(alone(text.encode()) is not None for text in texts)
    assert expression(json.dumps({"l": texts}).encode()) is expected
