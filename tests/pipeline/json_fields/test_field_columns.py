"""Fields are found as a JSON decoder finds them, or are left to the decoder."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.pipeline.json_fields.field_columns import (
    OBJECTS_AT_ONCE,
    Texts,
    can_find,
    find_fields,
)

NAMES = ["a", "bid", "bidSize", "a name of many letters", "é"]
values = st.sampled_from(
    ["1", "2.50", "null", '"x"', '""', '"a,b"', '"\\"a\\":1,"', '"\\\\"', '",\\"bid\\":7"', '"{["',
     '{"a":1,"bid":2}', "[1,{},[2]]", "{}", "[]", "true", '"}"', '"bid"', '"é"', '"a: 1, b"']
)  # fmt: skip
names = st.sampled_from([*NAMES, "bidSiz", "bidSizes", "", "b", "o"])
spaces = st.sampled_from(["", "", " ", "  ", "\t"])


def texts_of(bodies: pa.Array, names: Sequence[str]) -> list[Texts] | None:
    """Return the texts of some fields of objects, as `find_fields` finds them."""
    found = find_fields(bodies, names)
    return None if found is None else [found[name].texts for name in names]


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Return an object of some fields, with or without white space between tokens."""
    space = spaces if draw(st.booleans()) else st.just("")
    fields = [
        f"{draw(space)}{msgspec.json.encode(draw(names)).decode()}{draw(space)}:"
        f"{draw(space)}{draw(values)}{draw(space)}"
        for _ in range(draw(st.integers(1, 5)))
    ]
    return ("{" + ",".join(fields) + "}").encode()


def decoded(body: bytes | None, name: str) -> bytes | None:
    found = {} if body is None else msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return bytes(found[name]) if name in found else None


@examples(40)
@given(st.lists(st.one_of(objects(), objects(), st.none()), max_size=6), st.booleans())
def test_texts_are_those_of_a_decoder(bodies: list[bytes | None], has_breaks: bool) -> None:
    lines = [body and body + b"\r\n" * has_breaks for body in bodies]
    found = texts_of(pa.array(lines, pa.binary()), NAMES)
    if found is None:
        assert any(body and (b" " in body or b"\t" in body) for body in bodies)
        return
    for name, texts in zip(NAMES, found, strict=True):
        assert texts.array().to_pylist() == [decoded(body, name) for body in bodies]


@pytest.mark.parametrize("body", [b"[1]", b"7", b'"x"', b"{}", b'{"\\u0061":1}', b'{"a"\t:1}'])
def test_what_is_odd_has_no_answer(body: bytes) -> None:
    assert texts_of(pa.array([b'{"a":1}', body]), ["a"]) is None


def test_many_objects_and_slices_of_an_array() -> None:
    count = 2 * OBJECTS_AT_ONCE + 5
    bodies = [b'{"a":%d}' % number if number % 3 else b'{"b":1}' for number in range(count)]
    [texts] = texts_of(pa.array(bodies).slice(1, count - 2), ["a"]) or []
    expected = [b"%d" % number if number % 3 else None for number in range(1, count - 1)]
    assert texts.array().to_pylist() == expected


def test_names_that_an_escape_may_spell_are_left_out() -> None:
    assert [can_find(name) for name in ("é", "a b", "a/b", 'a"b', "a\\b", "\n", "")] == [
        True, True, False, False, False, False, False,
    ]  # fmt: skip
