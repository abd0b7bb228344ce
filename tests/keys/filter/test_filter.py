"""Filters as others use them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.keys.filter.test_printing import TREES
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Expression, Filter, conjunction

JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@examples(300, nightly=50_000)
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


def test_a_conjunction_matches_what_all_match() -> None:
    both = conjunction(Filter.parse("/a = 1 OR /b = 1"), Filter.parse("/c = 1"))
    assert str(both) == "(/a = 1 OR /b = 1) AND /c = 1"
    assert conjunction().matcher()(b"{}", "")


def test_an_expression_names_its_paths() -> None:
    paths = Expression.parse("/b + /a * /b").paths
    assert [str(path) for path in paths] == ["/b", "/a"]
