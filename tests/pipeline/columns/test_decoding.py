"""Many lines read at once get the verdict that each gets by itself, whatever is in them."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.decoding import LINES_AT_ONCE, LineDecoder
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.reading import LineInvalidError, MessageReader
from tidegate.pipeline.columns.rows import PUBLISHED, Messages, arrow_schema
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import Interval, Pace

SPECS = [KeySpec.of(["/k", "/n"]), KeySpec.of(["/n"])]
TIME = TimeField(FieldPath.parse("/t"))
WANTED = Filter.parse("/v > 2 OR /k = 'é'")

# Whatever a reader of columns is known to take for something else.
values = st.sampled_from(
    [
        *("1", "1.0", "-0", "1e2", "1E400", "NaN", "Infinity", "-", "01", "+1", ".5", "1.", "0x1"),
        *("18446744073709551615", "18446744073709551616", "-9223372036854775809"),
        *("9007199254740993", '"x"', '"é"', '"\\u00e9"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\x"'),
        *('"\t"', '"\\n"', "'x'", "true", "null", "nul", "[]", "[1,2]", "{}", '{"k":1}'),
        *("[" * 63 + "]" * 63, "[" * 64 + "]" * 64),
        *('"{[{["', "1 ", " 1", "1//", '""'),
    ]
)  # fmt: skip
plain = st.builds(
    '{{"k":"{}","n":{},"v":{},"t":{}}}'.format,
    st.sampled_from("xyé"), st.integers(0, 3), st.integers(0, 4), st.integers(0, 9_999),
)  # fmt: skip
strange = st.builds(
    '{{{}"k":{},"n":{},{}"t":{}}}{}'.format,
    st.sampled_from(["", " ", '"k":"twice",', '"o":{"k":1},', '"a":[{"k":1}],', ","]),
    values, values,
    st.sampled_from(["", '"v":3,', '"n":7,', '"\\u006e":8,', '"v":[3],', '"v":true,', '"":0,']),
    st.one_of(st.integers(0, 9_999).map(str), values),
    st.sampled_from(["", "", " ", ",", "}", " {}", "\r", "\n", "\ufeff", "#", "\x00", "\n{}"]),
)  # fmt: skip
lines = st.one_of(plain, plain, plain, strange).map(str.encode)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A line with a byte or two changed, taken out, put in, or said again."""
    line = draw(lines)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(line)))
        more = draw(
            st.one_of(st.sampled_from(b'"\\{}[]:,\n\r \x00\x80\xff\xed'), st.integers(0, 255))
        )
        cut = draw(st.integers(0, 2))
        line = line[:at] + bytes([more] * draw(st.integers(0, 2))) + line[at + cut :]
    return line


def read(reader: MessageReader, written: list[bytes]) -> Any:
    """Times and keys of some lines, or which of them is refused and why."""
    try:
        times_ns, codes = reader.read(pa.array(written, pa.binary()))
    except LineInvalidError as error:
        return error.index, error.reason
    assert times_ns is not None
    keys = [
        [known.texts[code] for code in column.tolist()]
        for known, column in zip(reader.codes, codes, strict=True)
    ]
    return times_ns.tolist(), keys


def line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no batch be read at once."""
    monkeypatch.setattr(LineDecoder, "decode", lambda decoder, lines: None)


@pytest.mark.parametrize("strict", [False, True])
@examples(30)
@given(st.lists(mutated(), max_size=4))
def test_both_ways_agree_on_every_line(strict: bool, written: list[bytes]) -> None:
    found = read(MessageReader(SPECS, TIME, strict=strict), written)
    with pytest.MonkeyPatch.context() as patch:
        line_by_line(patch)
        assert found == read(MessageReader(SPECS, TIME, strict=strict), written)


COLUMNS = arrow_schema(PUBLISHED)
ASKED = Conflation(
    SPECS[0], Interval(1, Pace.KEY), TIME, filter=WANTED, sets_aside=True, line_bytes_max=200
)


def taken(written: list[bytes]) -> list[tuple[Any, ...]]:
    """What the intake makes of the lines of a block: taken, unmatched, or set aside and why."""
    intake = Intake(ASKED)
    rows = [{"file": "f", "block": 0, "body": line} for line in written]
    batch = pa.RecordBatch.from_pylist(rows, schema=COLUMNS)

    def of(found: Messages) -> list[tuple[Any, ...]]:
        keys = [intake.texts[code] if not found.reasons else "" for code in found.codes]
        columns = (found.positions.tolist(), keys, found.times_ns.tolist(), found.gone.tolist())
        reasons = found.reasons or [None] * len(keys)
        return list(zip(*columns, found.bodies.to_pylist(), reasons, strict=True))

    return sorted((row for found in intake.messages(iter([batch])) for row in of(found)),
                  key=itemgetter(0))  # fmt: skip


@examples(20)
@given(st.lists(mutated(), max_size=5))
def test_both_ways_take_and_refuse_alike(written: list[bytes]) -> None:
    found = taken(written)
    with pytest.MonkeyPatch.context() as patch:
        line_by_line(patch)
        assert found == taken(written)


def test_a_break_is_refused_inside_a_text_and_a_space_between_two_values() -> None:
    inside, between = b'{"k":"x\ny","n":1,"v":3,"t":1}', b'{"k":"x","n":1,\r\n"v":3,"t":1}'
    [one, other] = taken([inside, between])
    assert one[4:] == (inside, "message-invalid: not JSON: invalid character")
    assert other[4:] == (between.replace(b"\r\n", b"  "), None)


def test_plain_lines_are_decoded_at_once() -> None:
    decoder = LineDecoder.of({"k": str | int, "t": int})
    assert decoder is not None
    fields = decoder.decode(
        pa.array([b'{"t":1,"k":"x"}', b'{ "k" : 7, "o":{"t":[2]} }'], pa.binary())
    )
    assert fields is not None
    assert fields.column("t") == [1, None]
    assert list(fields.rows(["k", "t"])) == [("x", 1), (7, None)]


ODD = {
    "two values on a line make up for one on two lines": [b'{"t":1}\n{"t":1}', b'{"t":', b"2}"],
    "two halves of lines with one break": [b'{"t":1', b'}\n{"t":2}'],
    "no UTF-8": [b'{"o":"\xff"}'],
    "half a surrogate pair in UTF-8": [b'{"o":"\xed\xa0\x80"}'],
    "too deep": [b'{"o":' + b"[" * 64 + b"]" * 64 + b"}"],
    "too deep, among flat lines": [b'{"t":1}'] * 70 + [b'{"o":' + b"[" * 64 + b"]" * 64 + b"}"],
    "a value after the value": [b'{"t":1} {"t":2}'],
    "a number that JSON lacks": [b'{"o":NaN}'],
    "a number beyond a double": [b'{"t":1}', b'{"o":[1,-1.5E+400]}'],
    "309 digits": [b'{"o":' + b"9" * 309 + b"}"],
    "a control character": [b'{"o":"\t"}'],
    "a time of another type": [b'{"t":"1"}'],
    "no object": [b"1"],
    "nothing": [b""],
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_lines_are_left_to_the_closures(odd: list[bytes]) -> None:
    decoder = LineDecoder.of({"t": int})
    assert decoder is not None
    assert decoder.decode(pa.array(odd, pa.binary())) is None


def test_nested_lines_are_not_odd() -> None:
    decoder = LineDecoder.of({"t": int})
    nested = [b'{"t":1,"o":[[{"t":[2]}],"{{{"]}'] * 200
    assert decoder is not None
    fields = decoder.decode(pa.array(nested, pa.binary()))
    assert fields is not None
    assert fields.column("t") == [1] * 200


@pytest.mark.parametrize("count", [0, 1, LINES_AT_ONCE, 2 * LINES_AT_ONCE + 1])
def test_many_lines_are_read_in_pieces_and_put_together(count: int) -> None:
    written = [b'{"k":"x","n":%d,"t":%d}' % (n % 7, n) for n in range(count)]
    times_ns, [keys, short] = read(MessageReader(SPECS, TIME), written)
    assert times_ns == [n * 1_000_000 for n in range(count)]
    assert keys == [f'["x",{n % 7}]' for n in range(count)]
    assert short == [re.sub('"x",', "", key) for key in keys]


def test_text_that_looks_like_a_number_beyond_a_double_is_decoded_at_once() -> None:
    decoder = LineDecoder.of({"t": int})
    assert decoder is not None
    lines = [b'{"t":1,"o":"5e4001a"}', b'{"t":2,"o":1.5e99}', b'{"t":3,"o":"7e400"}']
    fields = decoder.decode(pa.array(lines, pa.binary()))
    assert fields is not None
    assert fields.column("t") == [1, 2, 3]


@pytest.mark.parametrize(
    "written",
    [
        [b'{"k":1} {"k":2', b"}"],
        [b'{"k":1}{"k":', b'{"n":1}}'],
        [b'{"k":1}{"k":2', b',"n":1}'],
        [b'{"k":1}', b""],
        [b"", b'{"k":1}'],
        [b'{"k":1}\n', b"\n"],
    ],
)
def test_no_value_makes_up_for_a_line_without_one(written: list[bytes]) -> None:
    decoder = LineDecoder.of({"k": Any})
    assert decoder is not None
    assert decoder.decode(pa.array(written, pa.binary())) is None


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_lines_are_decoded_at_once_whatever_ends_them(end: bytes) -> None:
    decoder = LineDecoder.of({"k": Any})
    assert decoder is not None
    written = [b'{"k":1}' + end, b'{"k":2}' + end]
    found = decoder.decode(pa.array(written, pa.binary()))
    assert found is not None
    assert found.column("k") == [1, 2]
