"""What a trace looks like on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.manual_driver import make_frames
from tests.support.rules import rule
from tests.support.tracing import TracedDriver
from tidegate.app.http.routes.trace import PIECE, TraceText
from tidegate.clients.sse import Parser
from tidegate.conflation.definition import Kind
from tidegate.conflation.tracing.decisions import Decision, DecisionKind
from tidegate.conflation.tracing.recorder import OVERRUN, Ended, Published
from tidegate.conflation.tracing.replay import Trace
from tidegate.keys.text.duration import MILLISECOND

Told = list[tuple[str, dict[str, Any]]]


class Reader:
    """One who reads a trace."""

    def __init__(self, driver: TracedDriver, kind: Kind = Kind.JSON) -> None:
        assert driver.running is not None
        self._recorder = driver.running
        self._text = TraceText(kind, driver.now)
        self._trace, self._parser = Trace(), Parser()

    def reads(self) -> Told:
        calls = self._recorder.take_calls()
        flow = b"".join(piece for call in calls for piece in self._text.events(self._trace, call))
        return [(event.name, json.loads(event.text)) for event in self._parser.feed(flow)]


def traced(options: str = "conflation=100ms", **more: Any) -> tuple[TracedDriver, Reader]:
    driver = TracedDriver()
    driver.topic()
    driver.publish("z1")
    driver.sleep("5ms")
    driver.subscribed(options, **more)
    return driver, Reader(driver)


@rule("trace-2")
def test_it_begins_with_the_subscriber() -> None:
    _, reader = traced()
    assert reader.reads() == [
        (
            "call",
            {
                "at_ms": 0.0,
                "call": "begun",
                "session": "s",
                "sub": "sub1",
                "topic": "px",
                "bookmark": "e1-1",
                "definition": {"key": ["/k"], "type": "json", "conflation": "conflate"},
                "command": "subscribe",
                "options": "conflation=100ms,conflation_key=[/k],pace=batch",
                "lane": "conflation=100ms,conflation_key=[/k],pace=batch",
                "paused": False,
                "held": 0,
                "waiting": 0,
            },
        )
    ]


@rule("trace-3", "trace-4")
def test_a_message_from_call_to_delivery() -> None:
    """Times count from the beginning of the trace."""
    driver, reader = traced()
    driver.sleep("2ms")
    driver.publish("a1")
    driver.wait("100ms")
    driver.take()
    assert reader.reads()[1:] == [
        (
            "call",
            {
                "at_ms": 2.0,
                "call": "published",
                "messages": [{"offset": 2, "key": ["a"], "value": {"k": "a", "v": 1}}],
            },
        ),
        ("decision", {"at_ms": 2.0, "decision": "accepted", "key": ["a"], "offset": 2}),
        (
            "decision",
            {
                "at_ms": 2.0,
                "decision": "held",
                "key": ["a"],
                "offset": 2,
                "messages": 1,
                "due_ms": 102.0,
            },
        ),
        ("call", {"at_ms": 102.0, "call": "advanced"}),
        ("decision", {"at_ms": 102.0, "decision": "flushed", "offset": 2, "rows": 1}),
        (
            "call",
            {
                "at_ms": 102.0,
                "call": "taken",
                "bytes_max": 1 << 30,
                "rows": [{"offset": 2, "messages": 1}],
            },
        ),
        (
            "decision",
            {"at_ms": 102.0, "decision": "taken", "offset": 2, "rows": 1, "why": "in step"},
        ),
        (
            "decision",
            {"at_ms": 102.0, "decision": "delivered", "key": ["a"], "offset": 2, "messages": 1},
        ),
    ]


@rule("trace-1", "trace-2")
def test_removals_exempt_messages_joins_and_changes() -> None:
    driver, reader = traced("conflation=100ms,oof,pace=key")
    driver.publish("a1", exempt=True)
    driver.remove("a1")
    driver.subscribe("conflation=100ms,oof,pace=key", session="other")
    driver.change("sub1", "conflation=1s")
    calls = [document for name, document in reader.reads() if name == "call"]
    assert calls[1]["messages"][0]["exempt"] is True
    assert calls[2]["messages"] == [{"offset": 3, "key": ["a"], "removed": "deleted"}]
    assert [call["call"] for call in calls[3:]] == ["joined", "changed", "begun"]
    assert calls[4]["options"] == "conflation=1s,conflation_key=[/k],pace=batch"


@rule("trace-1", "trace-4")
def test_a_queue_that_is_conflated_and_a_new_definition() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.session(messages_max=1)
    driver.subscribed()
    reader = Reader(driver)
    driver.publish("a1")
    driver.topic(values_only=True)
    driver.publish("a2")
    assert [document["call"] for name, document in reader.reads() if name == "call"] == [
        "begun", "published", "redefined", "published", "conflated"
    ]  # fmt: skip


@rule("trace-5")
def test_it_ends_with_the_reason() -> None:
    driver, reader = traced()
    reader.reads()
    driver.engine.unsubscribe("s", "sub1")
    assert reader.reads() == [
        ("decision", {"at_ms": 0.0, "decision": "unsubscribed", "why": "REQUESTED"}),
        ("end", {"at_ms": 0.0, "reason": "REQUESTED"}),
    ]


@rule("trace-5")
def test_an_overrun_is_an_end_event_alone() -> None:
    text = TraceText(Kind.JSON, 0)
    pieces = list(text.events(Trace(), Ended(3 * MILLISECOND, OVERRUN)))
    assert pieces == [b'event: end\ndata: {"at_ms":3.0,"reason":"OVERRUN"}\n\n']


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [(Kind.TEXT, "é".encode(), "é"), (Kind.BINARY, b"\x00\xff", "AP8=")],
)
def test_texts_and_bytes_are_shown_as_in_envelopes(kind: Kind, payload: bytes, value: str) -> None:
    (frame,) = make_frames("a1")
    frames = [type(frame)(1, payload)]
    assert TraceText(kind, 0).call(Published(0, frames)) | {"messages": []} == {
        "at_ms": 0.0, "call": "published", "messages": []
    }  # fmt: skip
    (message,) = TraceText(kind, 0).call(Published(0, frames))["messages"]
    assert (message["key"], json.loads(bytes(message["value"]))) == (None, value)


def test_many_decisions_come_in_pieces() -> None:
    """So that others have their turn, and memory is bounded."""
    driver, _ = traced()
    driver.publish(" ".join(["a1"] * PIECE))
    assert driver.running is not None
    text, trace = TraceText(Kind.JSON, 0), Trace()
    pieces = [list(text.events(trace, call)) for call in driver.running.take_calls()]
    assert [len(each) for each in pieces] == [1, 2]
    assert [piece.count(b"event: ") for piece in pieces[1]] == [PIECE + 1, PIECE]


def test_what_there_is_nothing_to_say_of_is_left_out() -> None:
    shown = TraceText(Kind.JSON, 0).decision(Decision(0, DecisionKind.FLUSHED, rows=0))
    assert shown == {"at_ms": 0.0, "decision": "flushed", "rows": 0}
