"""Clients of HTTP/1.0, such as proxies by default: no chunks, and a body that its end ends."""

from __future__ import annotations

import json

import pytest

from tests.support.gateways import running_gateway
from tests.support.wire import connected
from tidegate.clients.sse import Parser

ASKED = "GET {} HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n{}\r\n"
SUBSCRIBE = "/v1/topics/px/subscribe"


def asked(target: str, fields: str = "") -> bytes:
    return ASKED.format(target, fields).encode()


async def test_a_stream_is_bare_text_and_ends_with_the_connection() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        async with connected(running.address) as wire:
            await wire.send(asked(f"{SUBSCRIBE}?command=sow"))
            status, headers = await wire.read_head()
            text = await wire.read_to_end()
    assert (status, headers["connection"]) == (200, "close")
    assert "transfer-encoding" not in headers
    assert text.startswith(b"event: hello\n")
    names = [event.name for event in Parser().feed(text)]
    assert names == ["hello", "group_begin", "message", "message", "group_end", "goodbye"]


async def test_each_event_comes_when_it_is_there() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with connected(running.address) as wire:
            await wire.send(asked(f"{SUBSCRIBE}?options=conflation%3D20ms"))
            await wire.read_until(b"event: hello")
            for number in range(3):
                await running.publish({"k": 1, "n": number})
                await wire.read_until(b'"n": %d}\n\n' % number)


async def test_a_compressed_stream_is_bare_too() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with connected(running.address) as wire:
            await wire.send(asked(f"{SUBSCRIBE}?command=sow", "Accept-Encoding: gzip\r\n"))
            _, headers = await wire.read_head()
            text = await wire.read_to_end()
    assert headers["content-encoding"] == "gzip"
    assert text.startswith(b"\x1f\x8b")


@pytest.mark.parametrize("target", ["/v1/topics/px/messages", "/v1/topics/px/sow"])
async def test_lines_are_bare_too(target: str) -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        async with connected(running.address) as wire:
            await wire.send(asked(target))
            _, headers = await wire.read_head()
            text = await wire.read_to_end()
    assert "transfer-encoding" not in headers
    assert len([json.loads(line) for line in text.splitlines()]) == 2


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_answer_of_known_length_keeps_it(method: str) -> None:
    async with running_gateway() as running, connected(running.address) as wire:
        await wire.send(asked("/healthz").replace(b"GET", method.encode()))
        _, headers = await wire.read_head()
        body = await wire.read_to_end()
    assert int(headers["content-length"]) > 0
    assert len(body) == (int(headers["content-length"]) if method == "GET" else 0)


async def test_polyfills_of_event_source_continue_by_the_address() -> None:
    """`event-source-polyfill` adds `lastEventId` to the address when it reconnects."""
    async with running_gateway() as running:
        await running.topic()
        first, second = [(await running.publish({"k": at}))["last"] for at in (1, 2)]
        place = f"last_event_id=unknown-1&lastEventId={first}"
        for query in (f"lastEventId={first}", place):
            path = f"{SUBSCRIBE}?command=subscribe&{query}"
            async with connected(running.address) as wire:
                await wire.send(asked(path))
                assert b"event: resumed" in await wire.read_until(second.encode())
        for query in (f"lastEventId={first}&lastEventId={first}", "lastEventId=%20"):
            answer = await running.http.get(f"{SUBSCRIBE}?{query}")
            assert (answer.status_code, answer.json()["code"]) == (400, "bookmark-invalid")
        opened = await running.http.post("/v1/sessions", json={"subscriptions": [{"topic": "px"}]})
        session = opened.json()["session"]
        events = f"/v1/sessions/{session}/events?lastEventId={session}-0"
        async with running.http.stream("GET", events) as answer:
            assert answer.status_code == 200
        refused = await running.http.get("/v1/topics/px/messages?lastEventId=x")
        assert refused.json()["code"] == "options-invalid"
