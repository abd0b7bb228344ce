"""Outputs as server-sent events: the bytes exactly, and what every reader gets out of them."""

from __future__ import annotations

import base64
import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.noted import PLAIN_IDS
from tests.support.profiles import examples
from tidegate.app.streams.encoding import (
    NOTHING,
    Format,
    Style,
    chunk,
    encode,
    rows_text,
)
from tidegate.app.streams.sse import event
from tidegate.clients.sse import Event, Parser
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Batch, Frame, RemovalReason, Row, Tombstone
from tidegate.conflation.outputs import (
    CloseReason,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    ResumeMode,
    Rows,
    Subscribed,
    Unsubscribed,
)
from tidegate.conflation.subscription import Command, FeedId, LaneId, Shown, Subscription
from tidegate.keys.jsontext import check_json, one_line
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

FRAMES = (Frame(4, b'{"k":"a"}', '["a"]'), Frame(6, b'{"k":"b"}', '["b"]'))


def rows(*frames: Frame, low_water: int | None = 6, op: str = "publish") -> Rows:
    return Rows("s1", "px", "e1", op, Batch(frames, 0, 6, low_water))


def style(
    form: Format = Format.VALUE,
    kind: Kind = Kind.JSON,
    shown: Shown = NOTHING,
    *,
    ids: bool = True,
) -> Style:
    lane_id = LaneId(FeedId(KeySpec.of(["/k"])), 1_000_000_000)
    wanted = Subscription("px", Command.SUBSCRIBE, lane_id, shown=shown)
    return Style(form, kind, wanted, Bookmark("e1", 0), ids=ids)


def text(*outputs: Output, form: Format = Format.VALUE, kind: Kind = Kind.JSON) -> bytes:
    return encode(outputs, {("s1", "px"): style(form, kind)}, 1_234)


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


def test_a_part_of_a_flush_says_that_it_goes_on() -> None:
    part = Rows("s1", "px", "e1", "publish", Batch(FRAMES, 0, 6, 6, has_more=True))
    [read] = Parser().feed(text(part, form=Format.BATCH))
    assert json.loads(read.text)["more"] is True
    assert b"more" not in text(rows(*FRAMES), form=Format.BATCH)


@pytest.mark.parametrize("form", Format)
def test_rows_with_something_still_to_come_have_no_id(form: Format) -> None:
    assert b"id:" not in text(rows(*FRAMES, low_water=None), form=form)


def test_a_flush_is_encoded_once_for_each_variant() -> None:
    shared = rows(*FRAMES)
    variants = [
        style(),
        style(ids=False),
        style(Format.BATCH),
        style(Format.ENVELOPE),
        style(Format.ENVELOPE, shown=Shown(timestamp=True)),
        style(Format.ENVELOPE, shown=Shown(receipt=True)),
        style(Format.ENVELOPE, shown=Shown(no_sowkey=True)),
    ]
    texts = [rows_text(shared, each) for each in variants]
    assert len(set(texts)) == len(variants)
    again = [rows_text(shared, each) for each in variants]
    assert all(one is other for one, other in zip(texts, again, strict=True))


def one_of_several(form: Format, *outputs: Output) -> bytes:
    return encode(outputs, {("s1", "px"): style(form, ids=False)}, 1_234, ids=PLAIN_IDS)


def test_in_a_session_a_line_of_its_own_goes_before_the_shared_ones() -> None:
    shared = rows(*FRAMES)
    flow = one_of_several(Format.BATCH, shared)
    [body] = shared.batch.encoded.values()
    assert flow == b'id: s1-6\ndata: {"sub":"s1",\n' + body
    [read] = Parser().feed(flow)
    alone = json.loads(text(rows(*FRAMES), form=Format.BATCH).rpartition(b"data: ")[2])
    assert json.loads(read.text) == {"sub": "s1", **alone}
    [without] = Parser().feed(one_of_several(Format.BATCH, rows(*FRAMES, low_water=None)))
    assert without.id == ""


def test_in_a_session_each_envelope_says_whose_it_is_and_the_last_has_the_id() -> None:
    events = Parser().feed(one_of_several(Format.ENVELOPE, rows(*FRAMES)))
    told = [json.loads(event.text) for event in events]
    assert [(each["sub"], each["value"]["k"]) for each in told] == [("s1", "a"), ("s1", "b")]
    assert one_of_several(Format.ENVELOPE, rows(*FRAMES)).count(b"id: ") == 1


def test_in_a_session_a_value_is_the_message_alone() -> None:
    flow = one_of_several(Format.VALUE, rows(*FRAMES))
    assert flow == b'data: {"k":"a"}\n\nid: s1-6\ndata: {"k":"b"}\n\n'


def test_in_a_session_control_events_have_its_ids() -> None:
    group, none = GroupEnd("s1", "px", 2, "e1-6"), Resumed("s1", "px", ResumeMode.REPLAY, 1)
    some = Resumed("s1", "px", ResumeMode.REPLAY, 0, bookmark="e1-9")
    end = Unsubscribed("s1", "px", "REQUESTED")
    flow = one_of_several(Format.BATCH, group, none, some, end)
    ids = [line for line in flow.split(b"\n") if line.startswith(b"id")]
    assert ids == [b"id: s1-6", b"id: s1-9", b"id: s1-end"]


def test_a_resume_says_why_the_session_was_closed() -> None:
    resumed = Resumed("s1", "px", ResumeMode.REPLAY, 1)
    flow = encode([resumed], {}, 1_234, closed="WRITE_TIMEOUT")
    assert json.loads(Parser().feed(flow)[0].text)["closed"] == "WRITE_TIMEOUT"


@pytest.mark.parametrize(
    ("command", "resume", "shown"),
    [
        (Command.SUBSCRIBE, None, "e1-0"),
        (Command.SOW_AND_SUBSCRIBE, None, None),  # a snapshot comes first
        (Command.SUBSCRIBE, Bookmark("e1", 7), "e1-7"),
        (Command.SUBSCRIBE, Bookmark("e0", 7), None),  # of a history that has ended
    ],
)
def test_in_a_session_a_subscription_says_where_its_rows_begin(
    command: Command, resume: Bookmark | None, shown: str | None
) -> None:
    lane_id = LaneId(FeedId(KeySpec.of(["/k"])), 1_000_000_000)
    wanted = Subscription("px", command, lane_id, resume=resume)
    entered = Style(Format.VALUE, Kind.JSON, wanted, Bookmark("e1", 0), ids=False).entry("s1")
    assert entered["bookmark"] == shown


DELTA = Row(5, b'{"k":"a","v":1}', '["a"]', patch=b'{"v":1}')
GONE = Tombstone(6, b'{"k":"a"}', '["a"]', reason=RemovalReason.MATCH)


def test_what_is_no_whole_value_is_a_named_event() -> None:
    assert text(rows(FRAMES[0], DELTA, GONE)) == (
        b'data: {"k":"a"}\n\n'
        b'event: delta\ndata: {"v":1}\n\n'
        b'id: e1-6\nevent: oof\ndata: {"reason":"match","key":["a"],"value":{"k":"a"}}\n\n'
    )


def test_in_an_envelope_the_op_tells_them_apart() -> None:
    read = Parser().feed(text(rows(FRAMES[0], DELTA, GONE), form=Format.ENVELOPE))
    assert [one.name for one in read] == ["message"] * 3
    assert [json.loads(one.text)["op"] for one in read] == ["publish", "delta", "oof"]


def test_text_has_a_field_for_each_line() -> None:
    frame = Frame(6, b"one\ntwo\r\n\rthree: \n", "")
    assert text(rows(frame), kind=Kind.TEXT) == (
        b"id: e1-6\ndata: one\ndata: two\ndata: \ndata: three: \ndata: \n\n"
    )
    [read] = Parser().feed(text(rows(Frame(6, b"")), kind=Kind.TEXT))
    assert read.text == ""


def test_binary_is_base64() -> None:
    assert text(rows(Frame(6, b"\x00\n\xff")), kind=Kind.BINARY) == b"id: e1-6\ndata: AAr/\n\n"


def test_the_removal_of_a_text_tells_it_as_json() -> None:
    gone = Tombstone(6, b'a "text"', reason=RemovalReason.DELETED)
    assert text(rows(gone), kind=Kind.TEXT) == (
        b'id: e1-6\nevent: oof\ndata: {"reason":"deleted","key":null,"value":"a \\"text\\""}\n\n'
    )


def test_snapshot_rows_say_so() -> None:
    assert b'"op":"snapshot"' in text(rows(*FRAMES, op="snapshot"), form=Format.ENVELOPE)


CONTROL = [
    (
        GroupBegin("s1", "px", 2),
        b'event: group_begin\ndata: {"sub":"s1","topic":"px","rows":2}\n\n',
    ),
    (
        GroupEnd("s1", "px", 2, "e1-6"),
        b'event: group_end\nid: e1-6\ndata: {"sub":"s1","topic":"px","rows":2}\n\n',
    ),
    (
        Subscribed("s1", "px"),
        (
            b'event: subscribed\ndata: {"sub":"s1","topic":"px",'
            b'"options":"conflation=1s,conflation_key=[/k],pace=batch",'
            b'"lane":"conflation=1s,conflation_key=[/k],pace=batch"}\n\n'
        ),
    ),
    (
        Resumed("s1", "px", ResumeMode.CHANGES, 5),
        (
            b'event: resumed\ndata: {"sub":"s1","topic":"px","mode":"changes",'
            b'"gap_messages":5,"gap_ms":null,"not_found":null,"closed":null}\n\n'
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
    flow = text(
        GroupBegin("s1", "px", 2), rows(*FRAMES, low_water=None), GroupEnd("s1", "px", 2, "e1-6")
    )
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
@examples(30)
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


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | NASTY, st.binary())
@examples(30)
def test_text_and_binary_are_read_as_published(line_text: str, binary: bytes) -> None:
    """I15 for what is no JSON; the kinds of line ends alone are not told apart."""
    flow = text(rows(Frame(6, line_text.encode())), kind=Kind.TEXT)
    [read] = Parser().feed(flow)
    assert read.text == re.sub("\r\n|\r", "\n", line_text)
    [read] = Parser().feed(text(rows(Frame(6, binary)), kind=Kind.BINARY))
    assert base64.b64decode(read.text) == binary


@pytest.mark.parametrize("size_bytes", [1, 15, 16, 4_096])
def test_a_chunk_says_the_size_of_its_text(size_bytes: int) -> None:
    size, _, text = chunk(b"x" * size_bytes).partition(b"\r\n")
    assert (int(size, 16), text) == (size_bytes, b"x" * size_bytes + b"\r\n")
