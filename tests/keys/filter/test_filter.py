"""Filters by their canonical text, and the index of those that a message can match."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.keys.filter.test_tree import TREES
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Expression, Filter, conjunction, index_tokens

JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@examples(20)
@given(TREES, JSON)
def test_no_message_breaks_a_filter(tree: object, message: object) -> None:
    payload = json.dumps(message, allow_nan=True).replace("Infinity", "1e999").encode()
    assert Filter.of(tree).matcher()(payload, "[1]") in (True, False)  # type: ignore[arg-type]  # a tree


@rule("filter-5", "filter-8")
@pytest.mark.parametrize(
    "payload",
    [b"1", b"[]", b'{"a":1e999}', b'{"a":' + b"1" * 5_000 + b"}", b'[{"a":7}]', b'{"a":{"a":1}}'],
)
def test_any_strict_json_is_answered(payload: bytes) -> None:
    matches = Filter.parse("/a >= 7").matcher()(payload, "")
    assert matches is (b"1e999" in payload or b"11" in payload or b"7" in payload)


def test_a_name_that_no_struct_can_have_is_read_as_well() -> None:
    assert Filter.parse(r"$['a\"'] = 1").matcher()(b'{"a\\"":1}', "")
    assert Filter.parse("$[1] = 2").matcher()(b"[1,2]", "")


@rule("filter-15")
def test_topic_and_key_are_known() -> None:
    found = Filter.parse("TOPIC_NAME() = 'orders' AND SOW_KEY() = '[1]'")
    assert found.matcher("orders")(b"{}", "[1]")
    assert not found.matcher("others")(b"{}", "[1]")
    assert found.matcher("orders") is found.matcher("orders")


def test_topics_share_a_filter_that_does_not_name_them() -> None:
    shared, named = Filter.parse("/a = 1"), Filter.parse("topic_name() = 'px'")
    assert shared.matcher("px") is shared.matcher("py")
    assert [named.matcher(topic)(b"{}", "") for topic in ("px", "py")] == [True, False]
    length, name = Expression.parse("LENGTH(/a)"), Expression.parse("Topic_Name()")
    assert length.evaluator("px") is length.evaluator("py")
    assert [name.evaluator(topic)(b"{}") for topic in ("px", "py")] == ["px", "py"]


def test_a_conjunction_matches_what_all_match() -> None:
    both = conjunction(Filter.parse("/a = 1 OR /b = 1"), Filter.parse("/c = 1"))
    assert str(both) == "(/a = 1 OR /b = 1) AND /c = 1"
    assert conjunction().matcher()(b"{}", "")


def test_an_expression_names_its_paths() -> None:
    paths = Expression.parse("/b + /a * /b").paths
    assert [str(path) for path in paths] == ["/b", "/a"]


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
@examples(30)
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
