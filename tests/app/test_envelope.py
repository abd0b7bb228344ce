"""Envelopes, byte for byte."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from app.envelope import EnvelopeWriter
from conflation.frame import Frame
from tests.support.profiles import examples

WRITER = EnvelopeWriter("px", "e1", "publish")


def test_an_envelope_has_topic_op_key_bookmark_and_value() -> None:
    frame = Frame(7, b'{"k":"a", "v":1.0}', '["a"]', 99)
    assert WRITER.envelope(frame) == (
        b'{"topic":"px","op":"publish","key":["a"],"bookmark":"e1-7","value":{"k":"a", "v":1.0}}'
    )


def test_a_topic_without_key_has_null_for_it() -> None:
    assert WRITER.envelope(Frame(7, b"1")) == (
        b'{"topic":"px","op":"publish","key":null,"bookmark":"e1-7","value":1}'
    )


def test_the_first_message_gives_the_bookmark() -> None:
    assert b'"bookmark":"e1-3"' in WRITER.envelope(Frame(7, b"1"), 3)


def test_the_timestamp_stands_before_the_value_where_asked_for() -> None:
    text = WRITER.envelope(Frame(7, b"1", timestamp_ms=1_381_239_000_012), timestamp=True)
    assert text.endswith(b'"bookmark":"e1-7","timestamp":1381239000012,"value":1}')


def test_a_batch_is_one_object_of_envelopes() -> None:
    frames = [Frame(7, b"1", "[1]"), Frame(9, b"2", "[2]")]
    assert WRITER.batch(frames, [5, 9]) == (
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
@examples(100, nightly=5_000)
def test_an_envelope_is_json_with_the_value_in_it(value: object, key: str, stamped: bool) -> None:
    frame = Frame(1, json.dumps(value).encode(), json.dumps([key]), 5)
    read = json.loads(WRITER.envelope(frame, timestamp=stamped))
    stamp = {"timestamp": 5} if stamped else {}
    assert read == {
        "topic": "px", "op": "publish", "key": [key], "bookmark": "e1-1", **stamp, "value": value
    }  # fmt: skip
