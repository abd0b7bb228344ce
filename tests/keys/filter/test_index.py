"""An index by equality misses no message that the filter matches."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Filter, index_tokens

TEXTS = [
    *(
        "/a = 5",
        "5.0 = /a",
        "/a = '5'",
        "/a = '5.0'",
        "/a = 'x'",
        "/a = TRUE",
        "/a IN (1, 'x', NULL)",
    ),
    *("/b AND /a IN ('\u00e9')", "/a = 18446744073709551616"),
]
SCALARS = st.sampled_from(
    [5, 5.0, "5", "5.0", "+5", "05", "x", "\u00e9", True, "1", 1, None, "", 2**64, "1e0", {"b": 5}]
)


@rule("filter-9", "filter-11")
@examples(300, nightly=20_000)
@given(st.sampled_from(TEXTS), st.one_of(SCALARS, st.lists(st.one_of(SCALARS, st.lists(SCALARS)))))
def test_what_matches_has_a_token_in_common(text: str, value: object) -> None:
    found = Filter.parse(text)
    equality = found.equality()
    assert equality is not None
    payload = json.dumps({"a": value, "b": 1}).encode()
    if found.matcher()(payload, ""):
        assert equality.tokens & set(index_tokens(equality.path)(payload))


@pytest.mark.parametrize(
    "text", ["/a > 5", "/a = 5 OR /b = 6", "NOT /a = 5", "/a IN (/b)", "/a = /b", "LENGTH(/a) = 5"]
)
def test_without_constants_there_is_no_equality(text: str) -> None:
    assert Filter.parse(text).equality() is None


def test_the_narrowest_conjunct_is_chosen() -> None:
    equality = Filter.parse("/a IN (1, 2) AND /b = 'x' AND /c > 1").equality()
    assert equality is not None
    assert (str(equality.path), equality.tokens) == ("/b", frozenset({"x"}))
