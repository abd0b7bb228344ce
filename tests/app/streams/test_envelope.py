"""Envelopes, byte for byte."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.app.streams.encoding import NOTHING, EnvelopeWriter, Op, json_value, op_of
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame, RemovalReason, Row, Tombstone
from tidegate.conflation.subscription import Shown

WRITER = EnvelopeWriter("px", "e1", "publish")
ROW = Row(9, b'{"k":1,"v":2}', "[1]", 900, first=4, first_ms=400, messages=3)
DELTA = Row(9, b'{"k":1,"v":2}', "[1]", 900, first=9, first_ms=900, patch=b'{"k":1}')
GONE = Tombstone(9, b'{"k":1}', "[1]", 900, reason=RemovalReason.EXPIRED)


def written(frame: Frame, shown: Shown = NOTHING, kind: Kind = Kind.JSON) -> bytes:
    return EnvelopeWriter("px", "e1", "publish", kind=kind, shown=shown).envelope(frame)


def test_an_envelope_has_topic_op_key_bookmark_and_value() -> None:
    frame = Frame(7, b'{"k":"a", "v":1.0}', '["a"]', 99)
    assert WRITER.envelope(frame) == (
        b'{"topic":"px","op":"publish","key":["a"],"bookmark":"e1-7","value":{"k":"a", "v":1.0}}'
    )


def test_a_topic_without_key_has_null_for_it() -> None:
    assert WRITER.envelope(Frame(7, b"1")) == (
        b'{"topic":"px","op":"publish","key":null,"bookmark":"e1-7","value":1}'
    )


def test_the_key_is_left_out_where_nobody_wants_it() -> None:
    assert written(Frame(7, b"1", "[1]"), Shown(no_sowkey=True)) == (
        b'{"topic":"px","op":"publish","bookmark":"e1-7","value":1}'
    )


def test_bookmark_and_timestamp_are_the_first_messages() -> None:
    assert written(ROW, Shown(timestamp=True)) == (
        b'{"topic":"px","op":"publish","key":[1],"bookmark":"e1-4","timestamp":400,'
        b'"value":{"k":1,"v":2}}'
    )
    assert b'"timestamp":900,' in written(Frame(7, b"1", "[1]", 900), Shown(timestamp=True))


def test_a_receipt_tells_what_a_row_stands_for() -> None:
    assert b'"bookmark":"e1-4","conflated":3,"first":"e1-4","last":"e1-9","value":' in written(
        ROW, Shown(receipt=True)
    )
    assert b'"conflated":1,"first":"e1-7","last":"e1-7",' in written(
        Frame(7, b"1"), Shown(receipt=True)
    )


def test_a_delta_has_its_patch_for_a_value() -> None:
    assert WRITER.envelope(DELTA) == (
        b'{"topic":"px","op":"delta","key":[1],"bookmark":"e1-9","value":{"k":1}}'
    )


def test_a_removal_has_its_reason_and_the_record_as_it_was() -> None:
    assert WRITER.envelope(GONE) == (
        b'{"topic":"px","op":"oof","key":[1],"bookmark":"e1-9","reason":"expired","value":{"k":1}}'
    )


@rule("interval-8")
def test_the_bookmark_of_a_removal_is_that_of_the_first_message_that_it_stands_for() -> None:
    gone = Tombstone(9, b"1", "[1]", 900, first=7, first_ms=700, messages=2)
    shown = Shown(timestamp=True, receipt=True)
    told = json.loads(EnvelopeWriter("px", "e1", "publish", shown=shown).envelope(gone))
    assert told["bookmark"] == told["first"] == "e1-7"
    assert (told["timestamp"], told["conflated"], told["last"]) == (700, 2, "e1-9")


@pytest.mark.parametrize("op", [Op.SNAPSHOT, Op.PUBLISH])
def test_the_op_is_the_rows_own(op: Op) -> None:
    assert [op_of(frame, op) for frame in (ROW, DELTA, GONE)] == [op, Op.DELTA, Op.OOF]


VALUES = [
    (Kind.JSON, b'{"a": 1}', b'{"a": 1}'),
    (Kind.SERIES, b"[1]", b"[1]"),
    (Kind.JSON, b"", b"null"),  # a removal of what was never there
    (Kind.TEXT, 'a"\n\r\né'.encode(), '"a\\"\\n\\r\\né"'.encode()),
    (Kind.TEXT, b"", b'""'),
    (Kind.BINARY, b"\x00\xff\n", b'"AP8K"'),
    (Kind.BINARY, b"", b'""'),
]


@pytest.mark.parametrize(("kind", "payload", "text"), VALUES)
def test_values_are_json_whatever_was_published(kind: Kind, payload: bytes, text: bytes) -> None:
    assert json_value(Frame(1, payload), kind) == text


def test_a_batch_is_one_object_of_envelopes() -> None:
    frames = [Row(7, b"1", "[1]", first=5, messages=2), Frame(9, b"2", "[2]")]
    assert WRITER.batch(frames) == (
        b'{"topic":"px","rows":['
        b'{"topic":"px","op":"publish","key":[1],"bookmark":"e1-5","value":1},'
        b'{"topic":"px","op":"publish","key":[2],"bookmark":"e1-9","value":2}]}'
    )


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=5,
)


@given(JSON_VALUES, st.text('aé"\\\n/', max_size=5), st.booleans())
@examples(20)
def test_an_envelope_is_json_with_the_value_in_it(value: object, key: str, stamped: bool) -> None:
    frame = Frame(1, json.dumps(value).encode(), json.dumps([key]), 5)
    read = json.loads(written(frame, Shown(timestamp=stamped)))
    stamp = {"timestamp": 5} if stamped else {}
    assert read == {
        "topic": "px", "op": "publish", "key": [key], "bookmark": "e1-1", **stamp, "value": value
    }  # fmt: skip


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary())
@examples(20)
def test_text_and_binary_come_back_from_an_envelope(text: str, binary: bytes) -> None:
    assert json.loads(written(Frame(1, text.encode()), kind=Kind.TEXT))["value"] == text
    read = json.loads(written(Frame(1, binary), kind=Kind.BINARY))["value"]
    assert base64.b64decode(read) == binary
