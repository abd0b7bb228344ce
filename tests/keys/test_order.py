"""Order of rows: one order over all values, both ways (rule view-7)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import PathInvalid
from tidegate.keys.order import PATHS_MAX, Order

pytestmark = rule("view-7")


RISING = [
    b"null",
    b"-1e400",
    b"-1",
    b"false",
    b"0.5",
    b"true",
    b"1.0000000000000000001",
    b"10",
    b"9007199254740992",
    b"9007199254740993",
    b"1e" + b"9" * 50,
    b'"1"',
    b'"10"',
    b'"A"',
    b'"B"',
    b'"a"',
    b'"\xc3\xa9"',
    b'"\xef\xbf\xbd"',
    b'"\xf0\x9f\x98\x80"',
]


def row(value: bytes) -> bytes:
    return b'{"a":' + value + b"}"


def test_nulls_then_numbers_then_strings() -> None:
    rows = [row(value) for value in RISING]
    upwards, downwards = Order.parse("/a"), Order.parse("/a DESC")
    falling = rows[::-1]
    assert sorted(falling, key=upwards.sort_token) == rows
    assert sorted(rows, key=downwards.sort_token) == falling
    assert len({upwards.sort_token(each) for each in rows}) == len(rows)
    assert len({downwards.sort_token(each) for each in rows}) == len(rows)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b"1.0"),
        (b"1", b"true"),
        (b"0", b"-0.0"),
        (b"null", b"{}"),
        (b"null", b"[]"),
        (b"null", b'""'),
        (b"null", b'{"a":1}'),
        (b"[7,8]", b"7"),
        (b"[[7],8]", b"7"),
        (b'"A"', b'"\\u0041"'),
    ],
)
@pytest.mark.parametrize("text", ["/a", "/a DESC"])
def test_equal_rows_have_equal_tokens(text: str, one: bytes, other: bytes) -> None:
    token = Order.parse(text).sort_token
    assert token(row(one)) == token(row(other))
    assert hash(token(row(one))) == hash(token(row(other)))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/a", "/a"),
        (" /a  asc , /b  DESC\tTEXT", "/a,/b DESC TEXT"),
        ("/a TEXT,$.b[0] desc", "/a TEXT,$['b'][0] DESC"),
        ("$['x DESC'] DESC", "$['x DESC'] DESC"),
        ("$['a, b'],/c", "$['a, b'],/c"),
    ],
)
def test_an_order_is_a_value(text: str, canonical: str) -> None:
    order = Order.parse(text)
    assert str(order) == canonical
    assert Order.parse(canonical) == order
    assert hash(Order.parse(canonical)) == hash(order)


def test_an_order_has_at_most_16_paths() -> None:
    paths = [f"/f{number}" for number in range(10, 10 + PATHS_MAX + 1)]
    assert len(Order.parse(",".join(paths[:-1])).columns) == PATHS_MAX
    with pytest.raises(PathInvalid, match="16") as refused:
        Order.parse(",".join(paths))
    assert refused.value.position == 5 * PATHS_MAX


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | st.text("aB1", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("b"), inner),
    max_leaves=4,
)


@given(st.lists(values, max_size=6), st.sampled_from(["/a", "/a DESC", "/a TEXT", "/a DESC TEXT"]))
@examples(25)
def test_any_two_rows_compare(rows: list[Any], text: str) -> None:
    tokens = [Order.parse(text).sort_token(json.dumps({"a": value}).encode()) for value in rows]
    for one in tokens:
        for other in tokens:
            assert (one < other) + (other < one) + (one == other) == 1
