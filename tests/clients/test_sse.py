"""Every cut of a stream gives the same events, and what is not UTF-8 is an error."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.clients import sse
from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.sse import Event, Parser

STREAM = (
    b": a comment\n\nevent: hello\ndata: {}\n\n"
    b'data: {"a":1}\n\nid: e-7\ndata: one\ndata: two\r\n\r\n'
    b"id: e-9\n\ndata:no space\rdata\r\rdata: \xc3\xa9\xf0\x9f\x8c\x8a\n\n"
    b"retry: 1500\nunknown: x\n\n"
    b"event: oof\ndata: last\n\nid: e-10\ndata: cut off"
)
EVENTS = [
    Event("hello", "{}"),
    Event("message", '{"a":1}'),
    Event("message", "one\ntwo", "e-7"),
    Event("message", "no space\n", "e-9"),
    Event("message", "é🌊", "e-9"),
    Event("oof", "last", "e-9"),
]


def test_a_stream_in_one_piece() -> None:
    parser = Parser()
    assert parser.feed(STREAM) == EVENTS
    assert parser.last_id == "e-9"
    assert parser.retry_ms == 1500


@examples(50)
@given(st.lists(st.integers(0, len(STREAM)), max_size=20).map(sorted))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    parser = Parser()
    edges = [0, *cuts, len(STREAM)]
    events = [
        event
        for start, end in itertools.pairwise(edges)
        for event in parser.feed(STREAM[start:end])
    ]
    assert events == EVENTS


def test_byte_by_byte() -> None:
    parser = Parser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


@pytest.mark.parametrize("line", [b"data: \xff", b"data: \xc3", b"data: \xed\xa0\x80"])
def test_what_is_not_utf8_is_an_error(line: bytes) -> None:
    with pytest.raises(AnswerInvalid, match="UTF-8"):
        Parser().feed(line + b"\n\n")


def test_an_event_without_bound_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 100)
    parser = Parser()
    for _ in range(5):  # many events may well be longer together
        assert len(parser.feed(b"data: " + b"x" * 60 + b"\n\n")) == 1
    parser.feed(b"data: " + b"x" * 60 + b"\n")
    with pytest.raises(AnswerInvalid, match="100 bytes"):
        parser.feed(b"data: " + b"x" * 60)
