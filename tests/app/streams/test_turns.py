"""A stream on a fast connection leaves time to others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.support.gateways import running_gateway
from tidegate.app.http import event_stream
from tidegate.app.http.routes.sessions import OPENED_AT_ONCE
from tidegate.app.streams import event_writer, scheduler, socket_stream
from tidegate.app.streams.event_writer import EventWriter
from tidegate.app.streams.reader import Reader

KEYS = 60
TEXT_BYTES = 1_000


@contextlib.asynccontextmanager
async def iterations_counted() -> AsyncIterator[list[int]]:
    """The number of event-loop iterations so far, as the only item of a list."""
    iterations = [0]

    async def count() -> None:
        while True:
            iterations[0] += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield iterations
    finally:
        counting.cancel()


async def test_a_snapshot_on_a_fast_connection_is_written_over_several_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_writer, "TAKE_BYTES_MAX", TEXT_BYTES)
    for module in (socket_stream, scheduler):
        monkeypatch.setattr(module, "BUDGET_S", -1.0)  # as if each text took longer
    written: list[int] = []
    next_text = EventWriter.next
    async with running_gateway() as running, iterations_counted() as iterations:

        def recorded(writer: EventWriter, now_s: float) -> bytes:
            text = next_text(writer, now_s)
            if text:
                written.append(iterations[0])
            return text

        monkeypatch.setattr(EventWriter, "next", recorded)
        await running.topic()
        for key in range(KEYS):
            await running.publish({"k": key, "v": "x" * 200})
        async with running.subscribe(command="sow") as stream:
            events = await stream.rest()
    assert sum(event.name == "message" for event in events) == KEYS
    assert len(written) > KEYS * 200 / TEXT_BYTES / 2
    assert len(set(written)) == len(written), "two texts in one iteration"


async def test_a_stream_of_many_that_ends_before_its_greeting_leaves_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "GREETED_AT_ONCE", 0)
    begun: list[int] = []

    async def cancelled(seconds: float) -> None:
        begun.append(running.gateway.driver.engine.stats().sessions)
        raise asyncio.CancelledError

    async with running_gateway() as running:
        await running.topic()
        with monkeypatch.context() as patched:
            patched.setattr(
                event_stream, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": cancelled})
            )
            with contextlib.suppress(httpx2.HTTPError):
                await running.http.get("/v1/topics/*/subscribe")
        assert running.gateway.driver.engine.stats().sessions == 0
    assert begun == [1]


async def test_others_are_served_before_a_stream_of_many_is_greeted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "GREETED_AT_ONCE", 1)
    order: list[str] = []
    begin, hello = event_stream.EventStream._begin, Reader.hello

    def begun(*arguments: Any) -> None:
        order.append("greeted")
        begin(*arguments)

    def greeting(reader: Reader, **more: Any) -> bytes:
        asyncio.get_running_loop().call_soon(order.append, "others")
        return hello(reader, **more)

    async with running_gateway() as running:
        for name in ("a.1", "a.2"):
            await running.topic(name)
        monkeypatch.setattr(event_stream.EventStream, "_begin", begun)
        monkeypatch.setattr(Reader, "hello", greeting)
        async with running.subscribe(topic="a.*"), running.subscribe(topic="a.1"):
            pass
    assert order == ["others", "greeted", "greeted", "others"]


async def test_a_session_that_is_closed_while_it_is_opened_leaves_nothing() -> None:
    async with running_gateway() as running:
        for number in range(OPENED_AT_ONCE + 2):
            await running.topic(f"t{number}")
        subscriptions = [{"topic": f"t{number}"} for number in range(OPENED_AT_ONCE + 2)]
        document = {"subscriptions": subscriptions}
        known = running.gateway.sessions
        opening = asyncio.create_task(running.http.post("/v1/sessions", json=document))
        while not known.states():
            await asyncio.sleep(0)
        for session in known.movable():
            known.close(session)
        answer = await opening
        assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown")
        assert not known.states()
