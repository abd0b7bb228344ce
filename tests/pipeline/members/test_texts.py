"""The texts of members of many messages are those of each by itself."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.keys.path import FieldPath
from tidegate.pipeline.members.decoding import LINES_AT_ONCE
from tidegate.pipeline.members.texts import doubles, exact_numbers, members_of, top_level

NAMES = ["a", "bid", "bidSize", "a name of many letters", "é", "", "a/b"]
values = st.sampled_from(
    ["1", "2.50", "null", '"x"', '""', '"a,b"', '"\\"a\\":1,"', '"\\\\"', '",\\"bid\\":7"', '"{["',
     '{"a":1,"bid":2}', "[1,{},[2]]", "{}", "[]", "true", '"}"', '"bid"', '"é"', '"a: 1, b"']
)  # fmt: skip
names = st.sampled_from([*NAMES, "bidSiz", "bidSizes", "", "b", "o"])
spaces = st.sampled_from(["", "", " ", "  ", "\t"])


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """An object of some members, tight or with white space here and there."""
    space = spaces if draw(st.booleans()) else st.just("")
    members = [
        f"{draw(space)}{msgspec.json.encode(draw(names)).decode()}{draw(space)}:"
        f"{draw(space)}{draw(values)}{draw(space)}"
        for _ in range(draw(st.integers(1, 5)))
    ]
    return ("{" + ",".join(members) + "}").encode()


def decoded(body: bytes | None, name: str) -> bytes | None:
    found = {} if body is None else msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return bytes(found[name]) if name in found else None


@examples(80)
@given(st.lists(st.one_of(objects(), objects(), st.none()), max_size=6), st.booleans())
def test_texts_are_those_of_a_decoder(bodies: list[bytes | None], has_breaks: bool) -> None:
    lines = [body and body + b"\r\n" * has_breaks for body in bodies]
    found = members_of(pa.array(lines, pa.binary()), NAMES)
    assert found is not None
    for name in NAMES:
        assert found[name].to_pylist() == [decoded(body, name) for body in bodies]


@pytest.mark.parametrize("body", [b"[1]", b"7", b'"x"', b'{"a":' + b"[" * 64 + b"]" * 64 + b"}"])
def test_what_is_odd_has_no_answer(body: bytes) -> None:
    assert members_of(pa.array([b'{"a":1}', body]), ["a"]) is None


def test_many_objects_and_slices_of_an_array() -> None:
    count = 2 * LINES_AT_ONCE + 5
    bodies = [b'{"a":%d}' % number if number % 3 else b'{"b":1}' for number in range(count)]
    found = members_of(pa.array(bodies).slice(1, count - 2), ["a"])
    assert found is not None
    expected = [b"%d" % number if number % 3 else None for number in range(1, count - 1)]
    assert found["a"].to_pylist() == expected


def test_of_no_message_there_are_no_texts() -> None:
    found = members_of(pa.array([], pa.binary()), ["a", "b"])
    assert found is not None
    assert [len(found[name]) for name in "ab"] == [0, 0]


def test_only_names_that_a_decoder_can_have_are_read_as_columns() -> None:
    paths = [FieldPath(("a b",)), FieldPath(('a"b',)), FieldPath(("a", "b")), FieldPath((1,))]
    assert [top_level(path) for path in paths] == ["a b", None, None, None]


def test_numbers_of_texts() -> None:
    def of(*texts: bytes | None) -> list[float] | None:
        found = doubles(pa.array(texts, pa.binary()))
        return None if found is None else [float(each) for each in found]

    assert of(b"1", b"-2.50", b"1e3") == [1, -2.5, 1000]
    assert str(of(b"1", None)) == "[1.0, nan]"
    for other in (b"true", b'"1"', b"[1]", b"null"):
        assert of(other) is None


@pytest.mark.parametrize(
    ("text", "is_exact"),
    [
        (b"0.0", True), (b"123456789012345", True), (b"-13.80", True), (b"0.0000000000001", True),
        (b"1234567890123456", False), (b"1e-999", False), (b"0e7", False), (b"1e15", False),
        (b"1E-14", False), (b'"x"', False),
    ],
)  # fmt: skip
def test_a_number_is_exact_if_no_other_text_has_its_double(text: bytes, is_exact: bool) -> None:
    assert (exact_numbers(pa.array([b"1", None, text], pa.binary())) is not None) == is_exact
