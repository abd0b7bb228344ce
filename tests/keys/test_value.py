"""JSON text as a value: taken apart, put together, compared (rule delta-5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.value import canonical_value, items, meet, members, placed, same, string, written

pytestmark = rule("delta-5")


scalars = st.none() | st.booleans() | st.integers() | st.floats(-1e6, 1e6)
values = st.recursive(
    scalars | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\u00e9\n"), inner),
    max_leaves=8,
)


def test_parts_keep_their_bytes() -> None:
    text = b' { "b" : 1.50 , "a" : [ 1.0, 2 ], "b" : 2e0 } '
    inner = members(text)
    assert inner is not None
    assert written(inner) == b'{"b":2e0,"a":[ 1.0, 2 ]}'
    assert [bytes(item) for item in items(b" [ 1.0, {} ]") or []] == [b"1.0", b"{}"]
    assert string(b' "\\u0041"') == "A"


@pytest.mark.parametrize("text", [b"1", b'"a"', b"null", b"true"])
def test_other_values_have_no_parts(text: bytes) -> None:
    assert members(text) is None
    assert items(text) is None
    assert members(b"[]") is None
    assert items(b"{}") is None
    assert string(b"{}") is None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (b"1", b"1.0", True),
        (b"1", b'"1"', False),
        (b"1", b"true", False),
        (b"0", b"false", False),
        (b"0", b"null", False),
        (b'""', b"null", False),
        (b'"A"', b'"\\u0041"', True),
        (b'"a"', b'"A"', False),
        (b"[1, 2]", b"[1.0,2]", True),
        (b"[1,2]", b"[2,1]", False),
        (b'{"a":1,"b":2}', b'{"b":2e0, "a":1}', True),
        (b'{"a":1}', b'{"a":1,"b":null}', False),
        (b'{"a":1}', b'{"a":2,"a":1}', True),
        (b'["a,b"]', b'["a","b"]', False),
        (b"9007199254740993", b"9007199254740992", False),
        (b"0.1", b"0.10000000000000000001", False),
    ],
)
def test_the_same_value_in_other_words(one: bytes, other: bytes, equal: bool) -> None:
    assert same(one, other) is equal
    assert (canonical_value(one) == canonical_value(other)) is equal


@given(values)
@examples(100, nightly=2_000)
def test_white_space_order_and_escapes_say_nothing(value: Any) -> None:
    plain = json.dumps(value, ensure_ascii=False).encode()
    other = json.dumps(value, indent=1, sort_keys=True).encode()
    assert same(plain, other)
    assert json.loads(canonical_value(plain)) == value


@pytest.mark.parametrize(
    ("place", "text", "result"),
    [
        (("a",), b"2.0", b'{"a":2.0,"b":{"c":1}}'),
        (("b", "d"), b"2", b'{"a":1,"b":{"c":1,"d":2}}'),
        (("a", "x"), b"2", b'{"a":{"x":2},"b":{"c":1}}'),
        (("z", "y"), b"2", b'{"a":1,"b":{"c":1},"z":{"y":2}}'),
        (("a",), None, b'{"b":{"c":1}}'),
        (("b", "c"), None, b'{"a":1,"b":{}}'),
        (("a", "x"), None, b'{"a":1,"b":{"c":1}}'),
        (("z",), None, b'{"a":1,"b":{"c":1}}'),
    ],
)
def test_a_text_is_put_in_its_place(
    place: tuple[str, ...], text: bytes | None, result: bytes
) -> None:
    fields = members(b'{"a":1,"b":{"c":1}}')
    assert fields is not None
    assert written(placed(fields, place, text)) == result


def test_places_meet_where_one_is_inside_the_other() -> None:
    assert meet(("a",), ("a", "b"))
    assert meet(("a", "b"), ("a", "b"))
    assert not meet(("a", "b"), ("a", "c"))
