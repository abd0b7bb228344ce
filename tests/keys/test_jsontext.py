"""JSON text is checked strictly, taken apart, and compared by what it says."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import (
    DEPTH_MAX,
    are_equal,
    canonical_value,
    check_json,
    items,
    members,
    object_text,
    one_line,
    overlap,
    string,
    with_value_at,
)


def refuse(_: str) -> object:
    raise ValueError


def strict(text: bytes) -> bool:
    """What RFC 8259 and rule key-3 take, by the standard library and a look at what came out."""
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return depth(value) <= DEPTH_MAX and not surrogate(value) and not is_beyond(value)


def is_beyond(value: object) -> bool:
    """Whether a number is in it that no double is near."""
    if isinstance(value, dict | list):
        return any(map(is_beyond, value.values() if isinstance(value, dict) else value))
    if not isinstance(value, int | float):
        return False
    try:
        return math.isinf(float(value))
    except OverflowError:
        return True


def depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def surrogate(value: object) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return re.search("[\ud800-\udfff]", text) is not None


def taken(text: bytes) -> bool:
    try:
        check_json(text)
    except JsonInvalid:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        b"0",
        b"-0",
        b"1e5",
        b"1E-5",
        b"-1.5e+3",
        b'""',
        b"null",
        b"true",
        b"[]",
        b"{}",
        b" 1\n",
        b'"\\u0000"',
        b'"\\ud83d\\ude00"',
        b'"\x7f"',
        '"\u2028é"'.encode(),
        b"\t[\r\n]",
        b'{"":1,"":2}',
        b"1" * 309,
        b"1.7976931348623158e308",
        b"0e999",
        b"1e-999",
        b'{"a":"1e999, 1E999","b":[' + b"1" * 250 + b"e-60]}",
        b'{"a":[{"b":null}]}',
        b'"\\/\\b\\f\\n\\r\\t"',
    ],
)
def test_json_is_taken(text: bytes) -> None:
    assert strict(text)
    check_json(text)


@rule("key-3")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"nul",
        b"True",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"01",
        b"-01",
        b"1.",
        b".5",
        b"+1",
        b"-",
        b"1e",
        b"1e+",
        b"0x1",
        b"1_0",
        b"'a'",
        b'"',
        b'"\\"',
        b'"\\x41"',
        b'"\\u12"',
        b'"\\u00zz"',
        b'"\n"',
        b'"\x00"',
        b'"\x1f"',
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b'{"a":1,}',
        b'{"a"}',
        b"{a:1}",
        b"{1:2}",
        b"[",
        b"]",
        b"[}",
        b"1 2",
        b"1\x00",
        b"\x00",
        b"//c\n1",
        b"\xef\xbb\xbf1",
        b"\x0c1",
        b"\xc2\xa01",
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud800\\ud800"',
        b'"\\ud800x"',
        b'{"\\ud800":1}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'"\xf8"',
        b'"\\ud800\\u0041"',
        b'"\\uD83D\\n"',
        b'["\\ud83d"]',
    ],
)
def test_anything_else_is_refused(text: bytes) -> None:
    assert not strict(text)
    with pytest.raises(JsonInvalid) as refused:
        check_json(text)
    assert refused.value.code == "message-invalid"
    assert refused.value.position is not None
    assert 0 <= refused.value.position <= len(text)


@pytest.mark.parametrize("text", [b"{}}", b'{"k":"a"}x', b"1,", b"[1]\x0c", b"{}\r{}"])
def test_a_refusal_names_the_first_byte_behind_a_text_that_is_whole(text: bytes) -> None:
    with pytest.raises(JsonInvalid) as refused:
        check_json(text)
    position = refused.value.position
    assert position is not None
    check_json(text[:position])


@rule("key-3")
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_64_levels_and_no_more(opening: bytes, closing: bytes) -> None:
    check_json(opening * DEPTH_MAX + b"1" + closing * DEPTH_MAX)
    check_json(opening * DEPTH_MAX + b'"[[[{{{"' + closing * DEPTH_MAX)
    with pytest.raises(JsonInvalid, match="64") as refused:
        check_json(opening * (DEPTH_MAX + 1) + b"1" + closing * (DEPTH_MAX + 1))
    assert refused.value.position == len(opening) * DEPTH_MAX


def test_many_brackets_are_not_many_levels() -> None:
    check_json(b"[" + b",".join([b"[]"] * 500) + b"]")
    check_json(b'["' + b"[" * 500 + b'\\"[{"]')


BEYOND = [
    (b"1e309", 0),
    (b'{"a":"1e400, 1","b":-1.8E+308}', 20),
    (b"[1e308,1.7976931348623159e308 ]", 7),
    (b'{"k":' + b"9" * 309 + b"}", 5),
    (b"[" + b"9" * 4_301 + b"]", 1),
    (b"[1," + b"1" * 250 + b".5e60]", 3),
    (b'{"a":1e' + b"0" * 50 + b'309,"a":1}', 5),
    (b"1e" + b"9" * 5_000, 0),
]


@rule("key-3")
@pytest.mark.parametrize(("text", "position"), BEYOND, ids=lambda given: str(given)[:40])
def test_a_number_that_no_double_is_near_is_refused_where_it_stands(
    text: bytes, position: int
) -> None:
    with pytest.raises(JsonInvalid, match="a number beyond a double") as refused:
        check_json(text)
    assert refused.value.position == position


@examples(100)
@given(
    st.sampled_from(["1", "-9.9", "0", "0.1", "1" * 199, "1" * 210, "1" * 250 + ".5", "9" * 308]),
    st.sampled_from(["", "e{}", "E{}", "e+{}", "E+{}", "e-{}", "e0{}", "e+00{}"]),
    st.sampled_from([0, 5, 58, 59, 98, 99, 100, 300, 307, 308, 309, 310, 4_301]),
    st.sampled_from(["{}", '{{"a":{}}}', "[{}]", "[{} ,1]", '{{"a":{}\n}}', '["{}, "]']),
)
def test_a_number_is_refused_exactly_if_its_double_is_infinite(
    mantissa: str, exponent: str, power: int, around: str
) -> None:
    number = mantissa + exponent.format(power)
    text = around.format(number).encode()
    is_refused = math.isinf(float(number)) and b'"' + number.encode() not in text
    assert taken(text) != is_refused


@pytest.mark.parametrize("text", [b"[" * 1_000_000, b'{"a":' * 200_000, b"[" * 70 + b"]" * 70])
def test_a_tower_of_brackets_is_refused_and_not_climbed(text: bytes) -> None:
    with pytest.raises(JsonInvalid, match="64"):
        check_json(text)


WRONG = st.sampled_from([b",", b":", b'"', b"\\", b"]", b"}", b"[", b"{", b"0", b"-", b".", b"e"])
STRANGE = st.sampled_from([b"\\u", b"\\ud800", b"\\udc00", b"\n", b"\x00", b"\xff", b"tru", b" "])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(max_size=3), inner)),
    max_leaves=8,
)


@examples(40)
@given(JSON, st.booleans(), st.lists(st.tuples(st.integers(0, 60), st.one_of(WRONG, STRANGE))))
def test_we_take_exactly_what_the_oracle_takes(
    value: object, ascii_only: bool, wounds: list[tuple[int, bytes]]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    for at, wound in wounds[:3]:
        text = text[:at] + wound + text[at + at % 2 :]
    assert taken(text) == strict(text)


@examples(30)
@given(st.text(alphabet='[]{}",:\\u0d8ef1-+.truefalsn \n', max_size=12))
def test_short_texts_of_json_letters(text: str) -> None:
    assert taken(text.encode()) == strict(text.encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":1}', b'{"a":1}'),
        (b' {\n"a"\r\n: 1 }\n', b'{ "a"  : 1 }'),
        (b'["a\\nb"]', b'["a\\nb"]'),
        (b"\t1 ", b"1"),
    ],
)
def test_one_line_changes_only_the_space_between_tokens(text: bytes, expected: bytes) -> None:
    assert one_line(text) == expected


@examples(20)
@given(JSON, st.sampled_from([None, 1]))
def test_one_line_is_one_line_of_the_same_value(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    line = one_line(text)
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.dumps(json.loads(line)) == json.dumps(json.loads(text))


scalars = st.none() | st.booleans() | st.integers() | st.floats(-1e6, 1e6)
values = st.recursive(
    scalars | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\u00e9\n"), inner),
    max_leaves=8,
)


@rule("delta-5")
def test_parts_keep_their_bytes() -> None:
    text = b' { "b" : 1.50 , "a" : [ 1.0, 2 ], "b" : 2e0 } '
    inner = members(text)
    assert inner is not None
    assert object_text(inner) == b'{"b":2e0,"a":[ 1.0, 2 ]}'
    assert [bytes(item) for item in items(b" [ 1.0, {} ]") or []] == [b"1.0", b"{}"]
    assert string(b' "\\u0041"') == "A"


@rule("delta-5")
@pytest.mark.parametrize("text", [b"1", b'"a"', b"null", b"true"])
def test_other_values_have_no_parts(text: bytes) -> None:
    assert members(text) is None
    assert items(text) is None
    assert members(b"[]") is None
    assert items(b"{}") is None
    assert string(b"{}") is None


@rule("delta-5")
def test_numbers_with_one_double_are_not_the_same() -> None:
    assert not are_equal(b"0.1", b"0.10000000000000000001")


@rule("delta-5")
@given(values)
@examples(15)
def test_white_space_order_and_escapes_say_nothing(value: Any) -> None:
    plain = json.dumps(value, ensure_ascii=False).encode()
    other = json.dumps(value, indent=1, sort_keys=True).encode()
    assert are_equal(plain, other)
    assert json.loads(canonical_value(plain)) == value


@rule("delta-5")
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
    assert object_text(with_value_at(fields, place, text)) == result


@rule("delta-5")
def test_places_meet_where_one_is_inside_the_other() -> None:
    assert overlap(("a",), ("a", "b"))
    assert overlap(("a", "b"), ("a", "b"))
    assert not overlap(("a", "b"), ("a", "c"))
