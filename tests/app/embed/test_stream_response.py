"""Streams of a conflated topic as responses, under a server that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
from collections import Counter
from typing import Any

import pytest
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.asgi import request_of, scope_of, served
from tests.support.gateways import eventually
from tests.support.rules import rule
from tidegate.embed import ConflatedTopic, TopicLimits

LARGE = "x" * 20_000


def topic(**limits: Any) -> ConflatedTopic:
    """A topic of prices with these limits."""
    return ConflatedTopic(key=["/symbol"], name="prices", limits=TopicLimits(**limits))


async def test_a_response_is_a_stream_of_the_records_and_their_changes() -> None:
    prices = topic()
    await prices.publish({"symbol": "a", "price": 1})
    response = prices.response(request_of(), "conflation=500ms")
    assert isinstance(response, EventSourceResponse)
    async with served(response, scope_of()) as answer:
        await answer.until(b"event: group_end")
        await prices.publish({"symbol": "a", "price": 2})
        last_id = await prices.publish({"symbol": "a", "price": 3})
        await answer.until(b'"price":3')
        assert [event.name for event in answer.events] == [
            "hello",
            "group_begin",
            "message",
            "group_end",
            "message",
        ]
        assert answer.events[-1].id == last_id
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    hello = json.loads(answer.events[0].text)
    assert hello["subscriptions"][0]["topic"] == "prices"


async def test_a_reader_that_returns_with_its_last_id_gets_what_it_missed_conflated() -> None:
    prices = topic()
    await prices.publish({"symbol": "a", "price": 1}, {"symbol": "b", "price": 1})
    async with served(prices.response(request_of(), "conflation=1s"), scope_of()) as answer:
        await answer.until(b"event: group_end")
        last_id = answer.events[-1].id
    for price in range(2, 10):
        await prices.publish({"symbol": "a", "price": price})
    back = request_of(last_event_id=last_id)
    async with served(prices.response(back, "conflation=1s"), scope_of()) as answer:
        await answer.until(b'"price":9')
        [_, resumed, row] = answer.events
    assert json.loads(resumed.text)["mode"] == "changes"
    assert json.loads(row.text) == {"symbol": "a", "price": 9}


@rule("embed-1")
@pytest.mark.parametrize(
    ("header", "query", "resumed"),
    [
        ("", "last_event_id=3", [4]),
        ("", "lastEventId=3", [4]),
        ("", "lastEventId=4&last_event_id=1", []),  # a polyfill adds the newer one
        ("4", "last_event_id=1", []),
        ("", "last_event_id=&lastEventId=", None),
        ("", "options=conflation=1h", None),
    ],
)
async def test_an_id_is_read_from_the_header_and_else_from_the_query(
    header: str, query: str, resumed: list[int] | None
) -> None:
    prices = topic()
    last_id = await prices.publish(*({"symbol": "a", "price": number} for number in range(1, 5)))
    epoch = last_id.removesuffix("4")
    scope = scope_of(**({"last_event_id": epoch + header} if header else {}))
    query = re.sub(r"=(\d)", rf"={epoch}\1", query)
    response = prices.response(Request({**scope, "query_string": query.encode()}), "conflation=1s")
    async with served(response, scope_of()) as answer:
        if resumed is None:
            await answer.until(b"event: group_end")
            assert "resumed" not in [event.name for event in answer.events]
        else:
            await answer.until(b"event: resumed")
            await asyncio.sleep(2)
            assert [json.loads(text)["price"] for text in answer.values()] == resumed


async def test_an_id_of_another_process_begins_with_the_records() -> None:
    prices = topic()
    await prices.publish({"symbol": "a"})
    response = prices.response(request_of(), last_event_id="0123456789ab-7")
    async with served(response, scope_of()) as answer:
        await answer.until(b"event: group_end")
        assert json.loads(answer.events[1].text)["mode"] == "snapshot"


@rule("embed-3")
@pytest.mark.parametrize(
    ("asked", "status", "code", "position"),
    [
        ({"options": "conflation=1s,top=3"}, 400, "options-invalid", 14),
        ({"filter": "/price >"}, 400, "filter-invalid", 8),
        ({"format": "xml"}, 400, "options-invalid", None),
    ],
)
async def test_what_is_refused_is_a_problem_with_code_and_position(
    asked: dict[str, Any], status: int, code: str, position: int | None
) -> None:
    async with served(topic().response(request_of(), **asked), scope_of()) as answer:
        await eventually(lambda: answer.is_over, "the answer is whole")
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = json.loads(answer.raw)
    assert (problem["code"], problem.get("position")) == (code, position)


async def test_a_place_that_the_journal_does_not_reach_is_a_problem_once_served() -> None:
    log = ConflatedTopic(limits=TopicLimits(journal_messages_max=2))
    for number in range(5):
        await log.publish({"n": number})
    options = f"bookmark={(await log.publish({'n': 5})).removesuffix('6')}1,bookmark_not_found=fail"
    async with served(log.response(request_of(), options), scope_of()) as answer:
        await eventually(lambda: answer.is_over, "the answer is whole")
    assert (answer.status, json.loads(answer.raw)["code"]) == (410, "bookmark-expired")


@rule("embed-3")
async def test_too_many_readers_are_told_to_come_back_by_a_stream() -> None:
    prices = topic(sessions_max=1)
    async with served(prices.response(request_of()), scope_of()) as first:
        await first.until(b"event: group_end")
        async with served(prices.response(request_of()), scope_of()) as answer:
            await answer.until(b'"code":"limit-reached"')
            assert answer.status == 200
            assert b"retry: " in answer.raw


async def test_a_finished_query_need_not_come_back() -> None:
    prices = topic()
    await prices.publish({"symbol": "a"})
    async with served(prices.response(request_of(), command="sow"), scope_of()) as answer:
        await answer.until(b"event: goodbye")
        last_id = answer.events[2].id or answer.events[3].id
    assert answer.is_over
    again = prices.response(request_of(last_event_id=last_id), command="sow")
    assert again.status_code == 204


async def test_head_and_responses_that_are_thrown_away_open_nothing() -> None:
    prices = topic(sessions_max=1)
    for _ in range(3):
        prices.response(request_of())
        async with served(prices.response(request_of()), scope_of("HEAD")) as answer:
            await eventually(lambda: answer.is_over, "the answer is whole")
        assert answer.headers["content-type"].startswith("text/event-stream")
    async with served(prices.response(request_of()), scope_of()) as answer:
        await answer.until(b"event: group_end")


async def test_a_client_that_leaves_leaves_no_reader() -> None:
    prices = topic(sessions_max=1)
    for _ in range(3):
        async with served(prices.response(request_of(), "conflation=1s"), scope_of()) as answer:
            await answer.until(b"event: group_end")


async def test_silence_is_filled_with_heartbeats() -> None:
    prices = topic(heartbeat_s=5)
    async with served(prices.response(request_of()), scope_of()) as answer:
        await asyncio.sleep(11)
        assert answer.raw.count(b": heartbeat\n\n") == 2


async def test_a_stream_is_compressed_where_the_client_takes_it() -> None:
    prices = topic()
    gzipped = request_of(accept_encoding="gzip")
    response = prices.response(gzipped, command="sow")
    await prices.publish({"symbol": LARGE})
    async with served(response, scope_of()) as answer:
        await eventually(lambda: answer.is_over, "the stream ends")
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.raw) < len(LARGE)
    assert LARGE.encode() in gzip.decompress(answer.raw)


@rule("embed-2")
async def test_a_reader_that_stops_gets_the_newest_of_each_key_when_it_goes_on() -> None:
    prices = topic(write_timeout_s=60)
    async with served(prices.response(request_of(), "conflation=100ms"), scope_of()) as answer:
        await answer.until(b"event: group_end")
        answer.freeze()
        for price in range(100):
            await prices.publish({"symbol": "a", "price": price, "pad": LARGE})
            await asyncio.sleep(0.1)
        answer.thaw()
        await answer.until(b'"price":99')
        found = [json.loads(text)["price"] for text in answer.values()]
    assert len(found) < 5
    assert found == sorted(set(found))


@pytest.mark.parametrize("writes_first", [False, True])
async def test_a_reader_that_takes_nothing_is_cut(*, writes_first: bool) -> None:
    prices = topic(write_timeout_s=10, sessions_max=1)
    response = prices.response(request_of(), "conflation=100ms")
    async with served(response, scope_of(), writes_first=writes_first) as answer:
        await answer.until(b"event: group_end")
        answer.freeze()
        await prices.publish({"symbol": "a"})
        await asyncio.sleep(9)
        assert not answer.is_cut
        await asyncio.sleep(3)
        await eventually(lambda: answer.is_cut, "it is cut")
    async with served(prices.response(request_of()), scope_of()) as answer:
        await answer.until(b"event: group_end")


@pytest.mark.parametrize("writes_first", [False, True])
async def test_a_send_that_waits_is_never_sent_twice(*, writes_first: bool) -> None:
    """Hypercorn has written a part when its send waits: what is said again would be doubled."""
    prices = topic(write_timeout_s=10)
    response = prices.response(request_of(), "conflation=100ms")
    async with served(response, scope_of(), writes_first=writes_first) as answer:
        await answer.until(b"event: group_end")
        answer.freeze()
        await prices.publish({"symbol": "a", "price": 1})
        await asyncio.sleep(5)
        answer.thaw()
        await prices.publish({"symbol": "a", "price": 2})
        await answer.until(b'"price":2')
        assert answer.values() == ['{"symbol":"a","price":1}', '{"symbol":"a","price":2}']


async def test_an_interval_that_is_automatic_grows_while_sends_wait() -> None:
    prices = topic(write_timeout_s=60)
    async with served(prices.response(request_of(), "conflation=auto"), scope_of()) as answer:
        await answer.until(b"event: group_end")
        for price in range(200):
            answer.freeze()
            await prices.publish({"symbol": "a", "price": price})
            await asyncio.sleep(0.2)
            answer.thaw()
            await asyncio.sleep(0.001)
        await answer.until(b"event: conflation")
        steps = [json.loads(it.text) for it in answer.events if it.name == "conflation"]
    assert (steps[0]["from"], steps[0]["to"], steps[0]["reason"]) == ("50ms", "100ms", "full")


async def test_close_says_goodbye_and_when_to_come_back() -> None:
    prices = topic()
    async with served(prices.response(request_of()), scope_of()) as answer:
        await answer.until(b"event: group_end")
        prices.close()
        await eventually(lambda: answer.is_over, "the stream ends")
        assert b"retry: " in answer.raw
        assert json.loads(answer.events[-1].text) == {"reason": "SHUTDOWN", "reconnect": True}


async def test_a_framework_may_add_to_the_header_and_finds_the_response_behind_a_route() -> None:
    prices = topic()

    async def stream(request: Request) -> Response:
        response = prices.response(request, request.query_params.get("options", ""))
        response.headers["X-Own"] = "yes"
        return response

    app = Starlette(routes=[Route("/prices", stream)])
    scope = {**scope_of(), "path": "/prices", "query_string": b"options=conflation=2s"}
    async with served(app, scope) as answer:
        await answer.until(b"event: group_end")
        assert b'"lane":"conflation=2s,' in answer.raw
    assert answer.headers["x-own"] == "yes"


async def test_other_work_runs_during_a_flush_to_many_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock stands still while streams write, so here one stream writes in an iteration."""
    monkeypatch.setattr("tidegate.app.streams.scheduler.BUDGET_S", -1.0)
    prices, written, iteration = topic(), list[int](), 0
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(50):
            response = prices.response(request_of(), "conflation=none")
            answer = await stack.enter_async_context(served(response, scope_of()))
            await answer.until(b"event: group_end")
            answer.on_taken = lambda: written.append(iteration)
        await prices.publish({"symbol": "a"})
        while len(written) < 50:
            iteration += 1
            assert iteration < 1_000
            await asyncio.sleep(0)
    assert max(Counter(written).values()) <= 3


def test_a_response_is_made_in_a_thread_too() -> None:
    """As of an endpoint without `async`, which frameworks call in a thread."""
    assert topic().response(request_of(), "conflation=1s").status_code == 200


async def test_a_stopped_server_is_told_by_sse_starlette(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = topic()
    async with served(prices.response(request_of()), scope_of()) as answer:
        await answer.until(b"event: group_end")
        monkeypatch.setattr("sse_starlette.sse.AppStatus.should_exit", True)
        await eventually(lambda: answer.is_over, "the stream ends")
        assert answer.events[-1].name == "goodbye"
