"""Columns say of many lines what keys/ says of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec, conflation_key
from tidegate.pipeline.columns.reading import LineInvalidError, MessageReader
from tidegate.pipeline.columns.times import TimeField, Unit

SPECS = [KeySpec.of(["/a", "/b"]), KeySpec.of(["/b"])]
TIME = TimeField(FieldPath.parse("/t"))

numbers = "1 1.0 1e0 -0 18446744073709551615 18446744073709551616 -9223372036854775809 1e400 2.5"
texts = '"1" "\\u0031" "\\u00e9" "é" "\\n" ""'
fields = st.sampled_from([*numbers.split(), *texts.split(), "true", "null", "{}", "[1,2]"])
plain = st.sampled_from(['"x"', '"y"', "7"])
records = st.builds('{{"a":{},"b":{},"t":5}}'.format, st.one_of(plain, fields), plain)
odd = st.sampled_from(
    [
        *('{"t":1}', '{"a":1,"a":2,"t":3}', '{"a":"x","t":1} {"t":1}', '{"a":\n1}', "[]", '"é"'),
        *('{"t":5,}', '{"t":NaN}', '{"t":2,"c":"\\ud800"}'),
        '{"t":1,"c":' + "[" * 64 + "]" * 64 + "}",
    ]
)


@examples(15)
@given(st.lists(st.one_of(records, records, records, odd), min_size=1, max_size=8))
def test_keys_are_those_of_the_closures_and_bad_lines_are_found(written: list[str]) -> None:
    lines = [text.encode() for text in written]
    bad = [index for index, line in enumerate(lines) if not is_message(line)]
    for time in (None, TIME):
        reader = MessageReader(SPECS, time)
        if time is None and not bad:
            _, codes = reader.read(arrow(lines))
            for spec, known, column in zip(SPECS, reader.codes, codes, strict=True):
                key_of = conflation_key(spec)
                assert [known.texts[code] for code in column] == [key_of(line) for line in lines]
        elif time is None:
            with pytest.raises(LineInvalidError) as raised:
                reader.read(arrow(lines))
            assert raised.value.index == bad[0]


def arrow(lines: list[bytes]) -> pa.Array:
    return pa.array(lines, pa.binary())


def is_message(line: bytes) -> bool:
    try:
        check_json(line)
    except JsonInvalid:
        return False
    return True


@pytest.mark.parametrize(
    ("unit", "written", "ns"),
    [
        ("auto", "34200012", 34_200_012_000_000),
        ("auto", "1381239000123", 1_381_239_000_123_000_000),
        ("auto", "1381239000", 1_381_239_000_000_000_000),
        ("auto", "1381239000.25", 1_381_239_000_250_000_000),
        ("s", "34200.5", 34_200_500_000_000),
        ("ms", "1381239000", 1_381_239_000_000_000),
        ("ms", "7.5", 7_500_000),
        ("ms", "-7", -7_000_000),
        ("auto", '"2013-10-08T13:30:00Z"', 1_381_239_000_000_000_000),
        ("auto", '"2013-10-08T15:30:00.000001+02:00"', 1_381_239_000_000_001_000),
        ("auto", '"20131008T133000"', 1_381_239_000_000_000_000),
    ],
)
def test_a_time_is_milliseconds_seconds_or_iso(unit: str, written: str, ns: int) -> None:
    for path in ("/t", "/deep/t"):
        reader = MessageReader([SPECS[1]], TimeField(FieldPath.parse(path), Unit(unit)))
        times, *_ = reader.read(
            arrow([f'{{"t":{written},"deep":{{"t":{written}}},"b":"x"}}'.encode()])
        )
        assert times is not None
        assert times.tolist() == [ns]


def test_each_number_has_its_own_unit() -> None:
    reader = MessageReader([SPECS[1]], TIME)
    times, *_ = reader.read(arrow([b'{"t":5}', b'{"t":200000000}', b'{"t":200000000000}']))
    assert times is not None
    assert times.tolist() == [5_000_000, 2 * 10**17, 2 * 10**17]


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"t":null}',
        b'{"t":true}',
        b'{"t":"noon"}',
        b'{"t":"0001-01-01T00:00:00Z"}',
        b'{"t":1e300}',
        b"7",
    ],
)
def test_a_line_without_a_time_is_named(line: bytes) -> None:
    with pytest.raises(LineInvalidError, match="no time in /t") as raised:
        MessageReader([SPECS[1]], TIME).read(arrow([b'{"t":1}', line]))
    assert raised.value.index == 1


def test_text_that_is_no_utf_8_is_found_also_where_nothing_is_read() -> None:
    with pytest.raises(LineInvalidError, match="UTF-8"):
        MessageReader(SPECS, TIME).read(arrow([b'{"a":"x","b":"x","t":1,"c":"\xff"}']))


def test_a_key_of_no_field_is_the_topic_itself() -> None:
    reader = MessageReader([KeySpec()], TIME)
    _, codes = reader.read(arrow([b'{"t":1}', b'{"t":2}']))
    assert np.array_equal(codes[0], [0, 0])
    assert reader.codes[0].texts == ["[]"]
