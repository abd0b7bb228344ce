"""Outputs as server-sent events: the bytes exactly, and what every reader gets out of them."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sse import Format, encode, event, rows_text
from clients.sse import Event, Parser
from conflation.frame import Batch, Frame
from conflation.outputs import (
    CloseReason,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    ResumeMode,
    Rows,
    Unsubscribed,
)
from keys.jsontext import check_json, one_line
from tests.support.profiles import examples

FRAMES = (Frame(4, b'{"k":"a"}', '["a"]'), Frame(6, b'{"k":"b"}', '["b"]'))


def rows(*frames: Frame, low_water: int | None = 6, op: str = "publish") -> Rows:
    return Rows("s1", "px", "e1", op, Batch(frames, 0, 6, low_water, [f.offset for f in frames]))


def text(*outputs: Output, form: Format = Format.VALUE) -> bytes:
    return encode(outputs, form, 1_234)


def test_values_are_messages_and_the_last_has_the_id() -> None:
    assert text(rows(*FRAMES)) == b'data: {"k":"a"}\n\nid: e1-6\ndata: {"k":"b"}\n\n'


def test_envelopes_are_one_event_each() -> None:
    assert text(rows(*FRAMES), form=Format.ENVELOPE) == (
        b'data: {"topic":"px","op":"publish","key":["a"],"bookmark":"e1-4","value":{"k":"a"}}\n\n'
        b"id: e1-6\n"
        b'data: {"topic":"px","op":"publish","key":["b"],"bookmark":"e1-6","value":{"k":"b"}}\n\n'
    )


def test_a_batch_is_one_event() -> None:
    [read] = Parser().feed(text(rows(*FRAMES), form=Format.BATCH))
    assert (read.name, read.id) == ("message", "e1-6")
    document = json.loads(read.text)
    assert document["topic"] == "px"
    assert [row["value"] for row in document["rows"]] == [{"k": "a"}, {"k": "b"}]


@pytest.mark.parametrize("form", Format)
def test_rows_with_something_still_to_come_have_no_id(form: Format) -> None:
    assert b"id:" not in text(rows(*FRAMES, low_water=None), form=form)


def test_a_flush_is_encoded_once_for_each_format() -> None:
    shared = rows(*FRAMES)
    assert rows_text(shared, Format.VALUE) is rows_text(shared, Format.VALUE)
    assert rows_text(shared, Format.BATCH) != rows_text(shared, Format.ENVELOPE)


def test_snapshot_rows_say_so() -> None:
    assert b'"op":"snapshot"' in text(rows(*FRAMES, op="snapshot"), form=Format.ENVELOPE)


CONTROL = [
    (GroupBegin("s1", 2), b'event: group_begin\ndata: {"sub":"s1","rows":2}\n\n'),
    (GroupEnd("s1", 2, "e1-6"), b'event: group_end\nid: e1-6\ndata: {"sub":"s1","rows":2}\n\n'),
    (
        Resumed("s1", ResumeMode.CHANGES, 5),
        (
            b'event: resumed\ndata: {"sub":"s1","mode":"changes","gap_messages":5,"gap_ms":null,'
            b'"closed":null}\n\n'
        ),
    ),
    (
        Unsubscribed("s1", "px", "REMOVED"),
        b'event: unsubscribed\ndata: {"sub":"s1","topic":"px","reason":"REMOVED"}\n\n',
    ),
    (
        Goodbye(CloseReason.SHUTDOWN),
        b'event: goodbye\nretry: 1234\ndata: {"reason":"SHUTDOWN","reconnect":true}\n\n',
    ),
    (
        Goodbye(CloseReason.UNSUBSCRIBED),
        b'event: goodbye\nretry: 1234\ndata: {"reason":"UNSUBSCRIBED","reconnect":false}\n\n',
    ),
]


@pytest.mark.parametrize(("output", "expected"), CONTROL, ids=range(len(CONTROL)))
def test_control_events_byte_for_byte(output: Output, expected: bytes) -> None:
    assert text(output) == expected


def test_outputs_follow_one_another() -> None:
    flow = text(GroupBegin("s1", 2), rows(*FRAMES, low_water=None), GroupEnd("s1", 2, "e1-6"))
    names = [read.name for read in Parser().feed(flow)]
    assert names == ["group_begin", "message", "message", "group_end"]


def test_a_named_event_has_name_id_and_wait_before_its_data() -> None:
    assert (
        event("x", [1], id_text="e-1", retry_ms=5) == b"event: x\nid: e-1\nretry: 5\ndata: [1]\n\n"
    )


# Whatever a publisher puts into a string must not end a line, an event or the stream.
NASTY = st.text(
    st.sampled_from('\n\r\u2028\u2029\u0085\0:"\\ adetvnit</script>\ufeff\U0001f600'), max_size=40
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SPACE = st.text(" \t\r\n", max_size=4)


@st.composite
def published(draw: st.DrawFn) -> bytes:
    """JSON as a publisher may write it: escaped or raw, with line breaks between tokens."""
    value = json.dumps(draw(NASTY), ensure_ascii=draw(st.booleans()))
    space = draw(SPACE)
    return f'{space}{{{space}"v"{space}:{space}{value}{space}}}{space}'.encode()


@given(
    st.lists(published(), min_size=1, max_size=4),
    st.sampled_from(Format),
    st.lists(st.integers(0, 400), max_size=6),
)
@examples(200, nightly=20_000)
def test_what_was_published_is_what_is_read_however_it_is_cut(
    texts: list[bytes], form: Format, cuts: list[int]
) -> None:
    """I15: no payload can forge or break an event."""
    for body in texts:
        check_json(body)
    frames = [Frame(at, one_line(body), f"[{at}]") for at, body in enumerate(texts, 1)]
    flow = text(rows(*frames, low_water=len(frames)), form=form)
    read = parsed(flow, cuts)
    assert [one.name for one in read] == ["message"] * len(read)
    assert [one.id for one in read] == [""] * (len(read) - 1) + [f"e1-{len(frames)}"]
    assert values(read, form) == [json.loads(body) for body in texts]


def parsed(flow: bytes, cuts: list[int]) -> list[Event]:
    parser, read = Parser(), []
    edges = [0, *sorted(min(cut, len(flow)) for cut in cuts), len(flow)]
    for start, end in itertools.pairwise(edges):
        read += parser.feed(flow[start:end])
    return read


def values(read: list[Event], form: Format) -> list[object]:
    documents = [json.loads(one.text) for one in read]
    if form is Format.VALUE:
        return documents
    if form is Format.BATCH:
        documents = documents[0]["rows"]
    return [document["value"] for document in documents]
