"""Canonical keys against an oracle made of the standard library's json and Decimal."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import KeyInvalid
from tidegate.keys.spec import (
    canonical_key,
    canonical_or_null,
    canonical_scalar,
    group_key,
    join_key,
)

Meaning = tuple[str, object]


def meaning(text: str) -> Meaning | None:
    """What a scalar is, whatever way it is written; None: no key."""
    value = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    if isinstance(value, Decimal):
        return number(value)
    return ("text", value) if isinstance(value, str) else ("truth", value)


def number(value: Decimal) -> Meaning | None:
    """What 64 bits hold exactly: integers, and what a double is spelled as (rule key-2)."""
    if not value:
        return ("number", Decimal(0))
    if not -400 <= value.adjusted() <= 400:
        return None
    if value == int(value):
        return ("number", value) if -(2**63) <= value < 2**64 else None
    return ("number", value) if Decimal(repr(float(value))) == value else None


def canonical(text: str) -> str | None:
    try:
        return canonical_scalar(text.encode())
    except KeyInvalid:
        return None


@rule("key-1", "key-2")
@pytest.mark.parametrize(
    "spellings",
    [
        ["1", "1.0", "1e0", "10e-1", "0.1e1", "1.000", "1E+0", "100E-2"],
        ["0", "-0", "0.0", "-0.0", "0e99", "-0E-5", "0e-99999999999999999999"],
        ["1.5", "15e-1", "1.50"],
        ["-7", "-7.0", "-70e-1"],
        ["18446744073709551615", "18446744073709551615.0", "1844674407370955161.5e1"],
        ["-9223372036854775808", "-9223372036854775808.00"],
        ["9007199254740993", "9007199254740993.0"],
        ["9007199254740994", "9007199254740994e0"],
        ["2251799813685248.5", "22517998136852485e-1"],
        ["0.1", "0.10", "1e-1"],
        ["5e-324", "0.5e-323"],
        ['"1"', '"\\u0031"'],
        ['"/"', '"\\/"'],
        ['"\u00e9"', '"\\u00e9"', '"\\u00E9"'],
        ['"\U0001f600"', '"\\ud83d\\ude00"'],
        ['"\\n"', '"\\u000a"'],
        ["true"],
        ["false"],
        ['"true"'],
        ['""'],
    ],
)
def test_one_spelling_for_each_value(spellings: list[str]) -> None:
    assert len({canonical(text) for text in spellings}) == 1
    assert canonical(spellings[0]) is not None


@rule("key-1")
def test_unlike_values_stay_apart() -> None:
    texts = ["1", '"1"', "true", "false", "0", '""', '"true"', "1.5", '"1.5"', '"null"', "-1"]
    texts += ["9007199254740992", "9007199254740993", '"\u00e9"', '"e\u0301"']
    assert len({canonical(text) for text in texts}) == len(texts)


NUMBERS = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,21})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.integers(-(2**63) - 3, 2**64 + 3).map(str),
    st.integers(2**53 - 5, 2**53 + 5).map(lambda whole: f"{whole}.{whole % 10}"),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1e-5", "1e5", "0.00001", "100000", "100000.0"]),
)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SCALARS = st.one_of(
    NUMBERS,
    STRINGS.map(json.dumps),
    STRINGS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(["true", "false", '"true"', '"1"', "1"]),
)


@rule("key-1", "key-2")
@examples(60)
@given(SCALARS, SCALARS)
def test_two_spellings_are_one_key_exactly_if_they_mean_the_same(one: str, two: str) -> None:
    first, second = canonical(one), canonical(two)
    assert (first is None) == (meaning(one) is None)
    assert (second is None) == (meaning(two) is None)
    if first is not None and second is not None:
        assert (first == second) == (meaning(one) == meaning(two))


@examples(50)
@given(SCALARS)
def test_a_canonical_spelling_is_json_and_its_own(text: str) -> None:
    found = canonical(text)
    if found is not None:
        assert meaning(found) == meaning(text)
        assert canonical(found) == found


@pytest.mark.parametrize("text", [b"7", b"\xff", b'["\xff"]', b"[" * 100000])
def test_what_no_text_of_json_is_no_key(text: bytes) -> None:
    with pytest.raises(KeyInvalid):
        canonical_key(text)


@rule("key-2")
@pytest.mark.parametrize("text", ["1" * 401, f"0.{'1' * 400}"])
def test_a_number_of_a_key_has_at_most_400_characters(text: str) -> None:
    with pytest.raises(KeyInvalid, match="64 bits"):
        canonical_scalar(text.encode())


def test_null_is_allowed_only_in_some_keys() -> None:
    assert canonical_or_null(b"null") == "null"
    assert [canonical_key(text) for text in (b"[]", b"[null]")] == ["[]", "[null]"]
    assert canonical_or_null(b"1.0") == "1"
    assert join_key(["1", "null"]) == "[1,null]"


@rule("interval-9")
@pytest.mark.parametrize(
    "spellings",
    [
        ['[{"b":[1.0,2],"a":"\\u0041"}]', '[ {"a": "A", "b": [1, 2.0]} ]'],
        ["[1e30]", "[1000000000000000000000000000000]", "[1000000000000000000000000000000.0]"],
        ['["IBM",7.0,null]', '["IBM",7,null]'],
        ["[0.1000000000000000000001]", "[1000000000000000000001e-22]"],
    ],
)
def test_any_value_is_a_field_of_a_group_s_key(spellings: list[str]) -> None:
    [spelling] = {group_key(text.encode()) for text in spellings}
    assert group_key(spelling.encode()) == spelling


@rule("interval-9")
def test_unlike_values_are_unlike_groups() -> None:
    texts = ["[[1]]", '[["1"]]', "[[]]", "[{}]", "[null]", '[""]', "[[[1]]]", "[1]"]
    texts += ["[0.1]", "[0.1000000000000000000001]", "[1e30]", "[1e31]"]
    assert len({group_key(text.encode()) for text in texts}) == len(texts)
    for text in ("", "1", "{}", "[1", '["\\ud800"]', "[" * 99 + "]" * 99):
        with pytest.raises(KeyInvalid):
            group_key(text.encode())
