"""The Python clients poll where a proxy keeps event streams back, and return to the stream."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import pytest

from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.network.buffering import BufferingProxy, buffering_proxy
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable, StreamLost
from tidegate.clients.gateway import Gateway
from tidegate.clients.live.live import Live
from tidegate.clients.polling import Page, Polling
from tidegate.clients.replica import Replica
from tidegate.clients.sse import Event
from tidegate.clients.stream import AGAIN_SECONDS, Stream

GRANTED = {"topic": "px", "options": "conflation=1s,oof", "lane": "px conflation=1s"}
BATCH = {"options": "conflation=1s,oof", "filter": "/n > 0", "format": "batch"}


def put(key: str, value: str, operation: str = "update") -> str:
    text = json.dumps(json.dumps([key]))
    return f'{{"type":"px","key":{text},"value":{value},"headers":{{"operation":"{operation}"}}}}'


def gone(key: str) -> str:
    text = json.dumps(json.dumps([key]))
    return f'{{"type":"px","key":{text},"headers":{{"operation":"delete"}}}}'


RESET = '{"headers":{"control":"reset"}}'


def page(changes: Sequence[str], place: str, *, is_whole: bool = True, status: int = 200) -> Page:
    headers = {"Stream-Next-Offset": place, "Stream-Cursor": "7"}
    if is_whole:
        headers["Stream-Up-To-Date"] = "true"
    asked = httpx2.Request("GET", "http://gateway/v1/topics/px/stream")
    body = f"[{','.join(changes)}]" if status == 200 else ""
    return Page.of(httpx2.Response(status, headers=headers, content=body.encode(), request=asked))


def timed_out() -> GatewayUnreachable:
    error = GatewayUnreachable("Cannot reach the gateway at http://gateway: timed out")
    error.timed_out = True
    return error


def refused(code: str, status: int = 400) -> GatewayProblem:
    return GatewayProblem(status, code, "Not valid options")


def granted(**params: str) -> Polling:
    polling = Polling("px", {**BATCH, **params})
    polling.begin("")
    assert list(polling.events(GRANTED, "")) == []
    return polling


def asked(polling: Polling) -> dict[str, str]:
    return dict(polling.request().given["params"])


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


def test_a_page_is_the_events_that_a_stream_would_have_brought() -> None:
    polling = granted()
    params = {"options": "conflation=1s,oof", "filter": "/n > 0", "format": "state"}
    assert asked(polling) == {**params, "offset": "-1", "live": "long-poll"}
    first = list(polling.events(page([put("a", "1")], "e_3_9", is_whole=False), ""))
    assert names(first) == ["hello", "group_begin", "message"]
    assert first[0].fields["subscriptions"] == [GRANTED]
    assert asked(polling)["offset"] == "e_3_9"
    assert not polling.is_whole
    rest = list(polling.events(page([put("b", "1")], "e_0009.0123456789"), ""))
    assert names(rest) == ["message", "group_end"]
    assert [event.id for event in [*first, *rest]] == ["", "", "", "", "e-9"]
    assert asked(polling) == {
        **params,
        "offset": "e_0009.0123456789",
        "live": "long-poll",
        "cursor": "7",
    }
    later = list(polling.events(page([put("a", "2"), gone("b")], "e_0011.0123456789"), "e-9"))
    (message,) = later
    assert message.id == "e-11"
    assert message.fields["rows"] == [
        {"topic": "px", "op": "publish", "key": ["a"], "bookmark": None, "value": 2},
        {"topic": "px", "op": "oof", "reason": "missed", "key": ["b"], "bookmark": None}
        | {"value": None},
    ]
    assert list(polling.events(page([], "e_0011.0123456789", status=204), "e-11")) == []


def test_a_replica_follows_the_events_through_a_reset() -> None:
    polling, replica = granted(), Replica()
    pages = [
        page([put("a", "1"), put("b", "1")], "e_2"),
        page([put("b", "2"), gone("a"), put("c", "12345678901234567890123")], "e_5"),
        page([RESET, put("c", "1")], "f_1_2", is_whole=False),
        page([put("d", "1e400")], "f_2"),
    ]
    for each in pages:
        for event in polling.events(each, ""):
            replica.take(event)
    assert [(row.key, row.value) for row in replica.rows.values()] == [(["c"], 1)]


def test_rows_are_in_the_format_that_was_asked_for() -> None:
    polling = granted(format="envelope")
    events = list(polling.events(page([put("a", "1"), put("b", "1")], "e_2"), ""))
    assert names(events) == ["hello", "group_begin", "message", "message", "group_end"]
    assert events[2].fields["op"] == "snapshot"
    polling = granted(format="value")
    assert polling.request().path == "/v1/topics/px"  # for its type
    polling = Polling("px", {"options": "conflation=1s"})
    assert polling.why_not == ""
    polling = granted(format="value")
    described = httpx2.Response(
        200, json={"type": "json"}, request=httpx2.Request("GET", "http://g")
    )
    list(polling.events(polling.request().read(described), ""))
    events = list(polling.events(page([put("a", "1.50"), gone("b")], "e_2"), ""))
    assert [(event.name, event.text) for event in events[2:4]] == [
        ("message", "1.50"),
        ("oof", '{"reason":"missed","key":["b"],"value":null}'),
    ]


@pytest.mark.parametrize(
    ("options", "told"), [("conflation=1s", []), ("conflation=1s,oof,top_n=2", ["message"])]
)
def test_removals_are_told_where_the_stream_has_them(options: str, told: list[str]) -> None:
    polling = Polling("px", {"options": "conflation=1s", "format": "batch"})
    polling.begin("")
    assert list(polling.events({**GRANTED, "options": options}, "")) == []
    events = list(polling.events(page([gone("b")], "e_2"), ""))
    assert names(events) == ["hello", "group_begin", *told, "group_end"]


def test_it_begins_after_the_last_event_of_the_stream() -> None:
    polling = granted()
    polling.begin("e-7")
    assert asked(polling)["offset"] == "e-7"
    events = list(polling.events(page([put("a", "1")], "e_9"), "e-7"))
    assert [(event.name, event.id) for event in events] == [("hello", "e-7"), ("message", "e-9")]
    polling.begin("session-7~e-9")
    assert asked(polling)["offset"] == "-1"


@pytest.mark.parametrize(
    ("topic", "params", "why"),
    [
        ("px.*", {}, "a pattern is not polled"),
        ("px", {"command": "sow"}, "the command sow is not polled"),
        ("px", {"command": "subscribe"}, "the command subscribe is not polled"),
        ("px", {"command": "sow_and_delta_subscribe"}, "in the format value"),
    ],
)
def test_some_subscriptions_are_not_polled(topic: str, params: dict[str, str], why: str) -> None:
    assert why in Polling(topic, params).why_not


def test_every_message_is_not_polled() -> None:
    polling = Polling("px", {"format": "batch"})
    list(polling.events({"topic": "px", "options": "conflation=none"}, ""))
    assert "every message" in polling.why_not


def test_an_answer_without_a_position_is_not_one_of_a_gateway() -> None:
    request = httpx2.Request("GET", "http://gateway/")
    for content, headers in ((b"[]", {}), (b"<html>", {"Stream-Next-Offset": "e_1"})):
        with pytest.raises(AnswerInvalid):
            Page.of(httpx2.Response(200, headers=headers, content=content, request=request))


class Held:
    """A stream that has been held back at second 0; what it has reported."""

    def __init__(self, topic: str = "px", **params: str) -> None:
        self.reported: list[str] = []
        wanted = {**BATCH, **params}
        polling = Polling(topic, wanted)
        self.stream = Stream.of(topic, wanted, trouble=self.reported.append, polling=polling)
        self.stream.failed(timed_out(), 0.0)

    def answer(self, answer: Any) -> list[str]:
        return names(list(self.stream.poll_succeeded(answer)))


def test_a_stream_that_is_held_back_is_polled_for_minutes() -> None:
    held = Held()
    stream = held.stream
    assert stream.should_poll(0.0)
    assert stream.standing_error is not None
    assert stream.next_poll().path == "/v1/explain"
    held.answer(GRANTED)
    assert not stream.is_polling
    held.answer(page([put("a", "1")], "e_1"))
    assert held.stream.is_polling
    assert held.stream.standing_error is None
    assert stream.last_id == "e-1"
    assert held.reported[-1] == "no event of the stream gets through: polling"
    assert not stream.should_poll(AGAIN_SECONDS)
    patience_s = stream.patience_s
    stream.failed(timed_out(), AGAIN_SECONDS)
    assert stream.should_poll(AGAIN_SECONDS)
    assert held.answer(page([put("a", "2")], "e_2")) == ["message"]
    assert len(held.reported) == 2
    stream.opened(200, {})
    assert patience_s == stream.silence_s_max
    assert list(stream.events(b'event: hello\ndata: {"heartbeat_ms":20000}\n\n'))
    assert not stream.is_polling
    assert stream.patience_s > patience_s


def test_a_long_snapshot_is_read_to_its_end_before_the_stream_is_tried() -> None:
    held = Held()
    held.answer(GRANTED)
    held.answer(page([put("a", "1")], "e_1_2", is_whole=False))
    assert held.stream.should_poll(AGAIN_SECONDS)
    held.answer(page([put("b", "1")], "e_2"))
    assert not held.stream.should_poll(AGAIN_SECONDS)


def test_a_silent_stream_is_held_back_only_before_its_first_byte() -> None:
    stream = Stream()
    stream.opened(200, {})
    assert stream.silence_error(15).timed_out
    list(stream.events(b": heartbeat\n\n"))
    assert not stream.silence_error(15).timed_out


def test_polling_that_fails_as_well_is_an_outage_and_the_stream_is_tried_first() -> None:
    held = Held()
    held.answer(GRANTED)
    held.answer(page([], "e_1"))
    held.stream.poll_failed(GatewayUnreachable("no answer"))
    assert not held.stream.should_poll(1.0)
    assert not held.stream.is_polling
    assert isinstance(held.stream.standing_error, GatewayUnreachable)


def test_nothing_that_answers_at_the_first_attempt_is_raised() -> None:
    with pytest.raises(GatewayUnreachable, match="no answer"):
        Held().stream.poll_failed(GatewayUnreachable("no answer"))
    with pytest.raises(GatewayProblem, match="topic-unknown"):
        Held().stream.poll_failed(refused("topic-unknown", 404))


def test_what_a_stream_grants_and_polling_refuses_waits_for_the_stream() -> None:
    held = Held(options="conflation=auto")
    held.answer(GRANTED)
    held.stream.poll_failed(refused("options-invalid"))
    assert not held.stream.should_poll(0.0)
    assert "polling cannot replace it: Not valid options" in held.reported[-1]
    held.stream.failed(timed_out(), 20.0)
    assert isinstance(held.stream.standing_error, StreamLost)
    assert not held.stream.should_poll(20.0)


def test_a_pattern_says_why_it_waits_for_the_stream() -> None:
    reported: list[str] = []
    stream = Stream(trouble=reported.append, polling=Polling("px.*", BATCH))
    stream.opened(200, {})
    stream.failed(stream.silence_error(15), 0.0)
    (sentence,) = reported
    assert sentence.endswith("polling cannot replace it: a pattern is not polled")


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with serving_here() as address:
        yield address


@pytest.fixture
def proxy(served: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[BufferingProxy]:
    """A proxy that keeps streams back, where nobody waits for more than seconds."""
    monkeypatch.setattr("tidegate.clients.stream.HELLO_SECONDS_MAX", 1.0)
    monkeypatch.setattr("tidegate.clients.stream.AGAIN_HELLO_SECONDS_MAX", 1.0)
    monkeypatch.setattr("tidegate.clients.stream.AGAIN_SECONDS", 2.0)
    monkeypatch.setattr("tidegate.app.http.routes.stream.WAIT_S", 1.0)
    with buffering_proxy(served) as proxy, Gateway(served) as gateway:
        if gateway.find_topic("px") is not None:
            gateway.delete_topic("px")
        gateway.put_topic("px", {"key": ["/id"]})
        gateway.publish("px", [{"id": f"k{n}", "n": n, "m": 1} for n in range(6000)])
        yield proxy


@pytest.fixture
def gateway(proxy: BufferingProxy) -> Iterator[Gateway]:
    with Gateway(proxy.address) as gateway:
        yield gateway


def until(is_so: Any) -> None:
    end = time.monotonic() + HANGS_S
    while not is_so():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def world(gateway: Gateway) -> dict[str, Any]:
    return {row["id"]: row for row in map(json.loads, gateway.sow("px"))}


@pytest.mark.system
@pytest.mark.parametrize("deltas", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_live_dict_polls_until_the_stream_gets_through(
    proxy: BufferingProxy, gateway: Gateway, *, deltas: bool
) -> None:
    said: list[str] = []
    told = said.append
    with gateway.live("px", options="conflation=50ms", deltas=deltas, trouble=told) as records:
        assert records.is_polling
        assert records.outage is None
        assert records.granted.startswith("conflation=50ms")
        assert len(records) == 6000
        gateway.publish("px", [{"id": "k1", "n": 7}, {"id": "new", "n": 1}])
        gateway.delete_records("px", record_key="k0")
        until(lambda: "new" in records and "k0" not in records)
        assert dict(records) == world(gateway)
        streams = proxy.streams
        until(lambda: proxy.streams > streams)  # it is tried again, and kept back
        proxy.keeps_back = False
        until(lambda: not records.is_polling)
        gateway.publish("px", [{"id": "k1", "n": 8}, {"id": "last", "n": 1}])
        gateway.delete_records("px", record_key="new")
        until(lambda: "last" in records and "new" not in records)
        assert dict(records) == world(gateway)
        _end_while_polling(proxy, gateway, records)
    assert any("polling" in sentence for sentence in said)


def _end_while_polling(proxy: BufferingProxy, gateway: Gateway, records: Live) -> None:
    """A dict that waits for the next flush ends at once."""
    proxy.keeps_back = True
    with gateway.live("px", options="conflation=50ms") as other:
        assert other.is_polling
        began = time.monotonic()
    assert time.monotonic() - began < HANGS_S / 4
    assert not records.is_polling


@pytest.mark.system
async def test_the_asyncio_client_polls_until_the_stream_gets_through(
    proxy: BufferingProxy,
) -> None:
    async with AsyncGateway(proxy.address) as gateway:
        events = gateway.subscribe("px", options="conflation=50ms,oof", filter="/n < 3")
        read: list[tuple[str, str]] = []
        async with events:
            async for event in events:
                read.append((event.name, event.text))
                if event.name == "group_end" and len(read) < 8:
                    assert events.is_polling
                    await gateway.delete_records("px", record_key="k1")
                elif event.name == "oof":
                    proxy.keeps_back = False
                elif event.name in ("resumed", "group_end"):
                    break
        assert not events.is_polling
    assert [name for name, _ in read[:6]] == ["hello", "group_begin", *["message"] * 3, "group_end"]
    assert read[6] == ("oof", '{"reason":"missed","key":["k1"],"value":null}')


@pytest.mark.system
def test_a_reader_that_waits_in_polling_is_closed_from_another_thread(gateway: Gateway) -> None:
    events = gateway.subscribe("px", options="conflation=50ms")
    closing = threading.Timer(0.5, events.close)  # the next request waits by then
    read = []
    for event in events:
        read.append(event.name)
        if event.name == "group_end":
            closing.start()
    closing.join()
    assert read.count("message") == 6000
