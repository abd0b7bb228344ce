"""Streams over sockets: heartbeats, slow peers, frozen peers, refusals, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

import pytest
from fastapi import FastAPI

from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.gateways import Running, eventually, names, running_gateway
from tests.support.servers import edge_settings, running_server
from tests.support.wire import Wire, connected, exchange, get, request
from tidegate.app.embed.stream_response import refusal_stream
from tidegate.app.refusals import Refused
from tidegate.app.streams.sse import RETRY_MS, jittered_retry_ms
from tidegate.clients.sse import Parser

pytestmark = pytest.mark.usefixtures("both_forms")

LARGE = "x" * 50_000


def sessions(running: Running) -> int:
    return running.gateway.driver.engine.stats().sessions


async def test_a_stream_begins_with_hello_and_what_was_granted() -> None:
    async with running_gateway(heartbeat="7s") as running:
        await running.topic()
        async with running.subscribe("conflation=1500ms") as stream:
            assert stream.answer.headers["content-type"].startswith("text/event-stream")
            assert stream.answer.headers["cache-control"] == "no-store"
        [hello] = running.hellos
        assert hello["heartbeat_ms"] == 7_000
        assert hello["epoch"] == running.gateway.catalog.get("px").record.epoch
        options = "conflation=1500ms,conflation_key=[/k],pace=batch"
        [subscription] = hello["subscriptions"]
        assert subscription == {
            "sub": "s1", "topic": "px", "options": options, "lane": options
        }  # fmt: skip


async def test_silence_is_filled_with_comments_and_nothing_else_is() -> None:
    async with running_gateway(heartbeat="100ms") as running:
        await running.topic()
        async with running.subscribe() as stream:
            await stream.raw_until(b": heartbeat\n\n: heartbeat\n\n")
            await running.publish({"k": 1})
            await stream.raw_until(b'data: {"k": 1}\n\n: heartbeat\n\n')


async def test_progress_is_told_in_silence_and_only_once() -> None:
    async with running_gateway(heartbeat="100ms") as running:
        await running.topic()
        async with running.subscribe("progress", filter="/v > 1", command="subscribe") as stream:
            hidden = (await running.publish({"k": 1, "v": 1}))["last"]
            await stream.raw_until(b'"bookmark":"' + hidden.encode() + b'"}\n\n')
            shown = (await running.publish({"k": 1, "v": 2}))["last"]
            raw = await stream.raw_until(b'"v": 2}\n\n: heartbeat\n\n: heartbeat\n\n')
    assert raw.count(b"event: progress") == 1, "a row's own id is progress"
    assert stream.last_id == shown


async def test_a_peer_that_leaves_leaves_no_session() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe(), running.subscribe("conflation=1s"):
            assert sessions(running) == 2
        await eventually(lambda: sessions(running) == 0, "the sessions end")
        assert running.gateway.driver.closed_sessions == {}


async def test_a_frozen_peer_is_cut_after_the_write_timeout() -> None:
    async with running_gateway(write_timeout="200ms") as running:
        await running.topic()
        async with running.frozen("conflation=50ms") as wire:
            await flood_until(running, lambda: sessions(running) == 0)
            await eventually(lambda: closed(running) == {"WRITE_TIMEOUT": 1}, "it is counted")
            wire.thaw()
            await wire.read_to_end()  # the socket is freed


async def flood_until(running: Running, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LOOPS_S):
        version = 0
        while not condition():
            version += 1
            await running.publish(*[{"k": k, "v": version, "pad": LARGE} for k in range(10)])
            await asyncio.sleep(0.02)


def closed(running: Running) -> dict[str, int]:
    return running.gateway.driver.closed_sessions


async def test_a_slow_peer_is_not_cut_while_it_takes_something() -> None:
    """Each piece that it reads comes well within the time-out; all of them take far longer."""
    async with running_gateway(write_timeout="500ms") as running:
        await running.topic()
        await running.publish(*[{"k": k, "pad": LARGE} for k in range(40)])
        async with running.frozen("conflation=50ms", query="&command=sow") as wire:
            began_at = asyncio.get_running_loop().time()
            received = await slowly(
                wire, until=b"event: goodbye", pause_s=0.1, piece_bytes=128 << 10
            )
            assert asyncio.get_running_loop().time() - began_at > 1
        assert closed(running) == {"UNSUBSCRIBED": 1}
        assert received.count(b"data: {") >= 40


async def slowly(wire: Wire, *, until: bytes, pause_s: float, piece_bytes: int) -> bytes:
    """Read little at a time off the socket itself, so that nothing is read ahead."""
    transport = wire.transport
    received = bytearray(wire.reader._buffer)  # type: ignore[attr-defined]  # asyncio's own
    socket = transport.get_extra_info("socket")
    async with asyncio.timeout(HANGS_S):
        while until not in received:
            await asyncio.sleep(pause_s)
            with contextlib.suppress(BlockingIOError):  # nothing has come meanwhile
                piece = socket._sock.recv(piece_bytes)
                assert piece, "the peer was cut"
                received += piece
    return bytes(received)


async def test_what_is_published_while_a_peer_sleeps_overtakes_what_it_has_not_taken() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=50ms", command="subscribe") as stream:
            for version in range(1, 31):
                await running.publish(*[{"k": k, "v": version, "pad": LARGE} for k in range(5)])
                await eventually(lambda: nothing_held(running), "the interval ends")
            newest, rows = dict[int, int](), 0
            while newest != dict.fromkeys(range(5), 30):
                [row] = await stream.values(1)
                assert row["v"] > newest.get(row["k"], 0)
                newest[row["k"]] = row["v"]
                rows += 1
            assert rows < 140  # of 150: the rest was overtaken


def nothing_held(running: Running) -> bool:
    return running.gateway.driver.engine.next_deadline() is None


async def test_a_stream_ends_in_good_order_after_its_goodbye() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe(command="subscribe") as stream:
            running.gateway.say_goodbye()
            [goodbye] = await stream.rest()
        assert goodbye.name == "goodbye"
        assert json.loads(goodbye.text) == {"reason": "SHUTDOWN", "reconnect": True}
        assert RETRY_MS[0] <= (stream.parser.retry_ms or 0) <= RETRY_MS[1]
        assert sessions(running) == 0


async def test_while_stopping_new_streams_are_told_in_a_stream() -> None:
    """A browser never comes back after a 503."""
    async with running_gateway() as running:
        await running.topic()
        running.gateway.say_goodbye()
        answer = await running.http.get("/v1/topics/px/subscribe")
        assert answer.status_code == 200
        [refused] = Parser().feed(answer.content)
        assert (refused.name, json.loads(refused.text)["code"]) == ("refused", "not-ready")


async def test_one_session_too_many_is_told_in_a_stream() -> None:
    async with running_gateway(sessions_max=1) as running:
        await running.topic()
        async with running.subscribe():
            answer = await running.http.get("/v1/topics/px/subscribe")
            parser = Parser()
            [refused] = parser.feed(answer.content)
            assert (refused.name, json.loads(refused.text)["code"]) == ("refused", "limit-reached")
            assert parser.retry_ms is not None
        await eventually(lambda: sessions(running) == 0, "the first leaves")
        async with running.subscribe() as stream:
            assert names(await stream.until("group_end")) == ["group_begin", "group_end"]


async def test_a_refusal_is_a_problem_in_an_event() -> None:
    app = FastAPI(openapi_url=None)
    app.add_api_route("/", lambda: refusal_stream(Refused("limit-reached", "Full.")))
    async with running_server(app, edge_settings()) as address:
        answer = await exchange(address, request())
    assert answer.headers["content-type"].startswith("text/event-stream")
    parser = Parser()
    [refused] = parser.feed(answer.body)
    document = Refused("limit-reached", "Full.").document()
    assert (refused.name, json.loads(refused.text)) == ("refused", document)
    assert parser.retry_ms is not None


def test_waits_are_spread() -> None:
    waits = {jittered_retry_ms() for _ in range(50)}
    assert len(waits) > 10
    assert all(RETRY_MS[0] <= wait <= RETRY_MS[1] for wait in waits)


async def test_a_peer_that_leaves_within_its_snapshot_is_written_to_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*({"k": k, "pad": "x" * 1_000} for k in range(3_000)))
        for _ in range(3):
            async with connected(running.address) as wire:
                await wire.send(request("/v1/topics/px/subscribe"))
                await wire.read_head()
                await wire.reader.readexactly(20_000)
                wire.transport.abort()
            await eventually(lambda: not sessions(running), "its session ends")
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_a_peer_that_leaves_while_its_stream_waits_for_room_leaves_no_session() -> None:
    """The answer before the stream is one write that the peer does not take."""
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "pad": "x" * 900_000})
        async with connected(running.address) as wire:
            wire.freeze()
            await wire.send(get(first=b"GET /v1/topics/px/sow/%5B1%5D HTTP/1.1"))
            await wire.send(get(first=b"GET /v1/topics/px/subscribe HTTP/1.1"))
            await eventually(lambda: sessions(running) == 1, "its stream waits")
        await eventually(lambda: sessions(running) == 0, "its session ends")
        assert running.gateway.sessions.listed("", 10) == []
