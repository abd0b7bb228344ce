"""The asyncio client notices silence, ends when it is told to, and leaves nothing running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.clients.support.streams import broken_stream, plain, scripted, stream
from tests.clients.test_live import (
    APART_S,
    REFUSAL,
    batch,
    hello,
    in_parts,
    modules_in,
    snapshot,
)
from tests.clients.test_subscription import Clock
from tests.support.deadlines import HANGS_S
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable
from tidegate.clients.stream import HELLO_SECONDS_MAX

HELLO = b'event: hello\ndata: {"session":"s","heartbeat_ms":20000}\n\n'
GOODBYE = b'event: goodbye\nretry: 1\ndata: {"reason":"UNSUBSCRIBED","reconnect":false}\n\n'


def row(number: int) -> bytes:
    return b"id: e-%d\ndata: %d\n\n" % (number, number)


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """Holds a scripted stream open; let go at the end."""
    waits = threading.Event()
    yield waits
    waits.set()


async def test_a_lost_and_a_silent_connection_are_resumed(hang: threading.Event) -> None:
    quiet = b'event: hello\ndata: {"heartbeat_ms":40}\n\n'
    scripts = (
        broken_stream(HELLO, row(1)),
        stream(quiet, row(2), then_hang=hang),
        stream(HELLO, row(3), GOODBYE),
    )
    lost: list[str] = []
    with scripted(*scripts) as fake:
        async with (
            AsyncGateway(fake.address) as gateway,
            gateway.subscribe("t", trouble=lost.append) as events,
        ):
            texts = [event.text async for event in events if event.name == "message"]
        hang.set()
        assert [after for after, _ in fake.requests] == [None, "e-1", "e-2"]
    assert texts == ["1", "2", "3"]
    assert "silent" in lost[1]


async def test_close_from_another_task_ends_a_waiting_iteration(hang: threading.Event) -> None:
    with scripted(stream(HELLO, then_hang=hang)) as fake:
        async with (
            AsyncGateway(fake.address) as gateway,
            gateway.subscribe("t") as events,
        ):
            assert (await anext(events)).name == "hello"
            asyncio.get_running_loop().call_later(0.05, events.close)
            async with asyncio.timeout(HANGS_S):
                assert [event async for event in events] == []
        hang.set()


@pytest.mark.parametrize("for_s", [None, 0.05])
async def test_an_iteration_that_waits_for_an_answer_ends_in_time(for_s: float | None) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, AsyncGateway(address) as gateway:
        events = gateway.subscribe("t", for_s=for_s)
        if for_s is None:
            asyncio.get_running_loop().call_later(0.05, events.close)
        began_s = asyncio.get_running_loop().time()
        assert [event async for event in events] == []
        assert asyncio.get_running_loop().time() - began_s < HELLO_SECONDS_MAX


async def test_leaving_the_block_ends_the_iteration_of_another_task(hang: threading.Event) -> None:
    with scripted(stream(HELLO, then_hang=hang)) as fake:
        async with AsyncGateway(fake.address) as gateway:
            async with gateway.subscribe("t") as events:
                assert (await anext(events)).name == "hello"
                waiting = asyncio.ensure_future(anext(events, None))
                await asyncio.sleep(0.05)
            async with asyncio.timeout(HANGS_S):
                assert await waiting is None
        hang.set()


async def test_a_cancelled_reader_is_cancelled(hang: threading.Event) -> None:
    with scripted(stream(HELLO, then_hang=hang)) as fake:
        async with AsyncGateway(fake.address) as gateway:
            events = gateway.subscribe("t")
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        hang.set()


async def test_it_ends_after_the_time_given(
    hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("tidegate.clients.aio.subscription.time", clock)
    with scripted(stream(HELLO, then_hang=hang)) as fake:
        async with AsyncGateway(fake.address) as gateway:
            events = gateway.subscribe("t", for_s=0.3)
            assert (await anext(events)).name == "hello"
            clock.go()
            assert [event async for event in events] == []
        hang.set()


async def test_what_is_refused_or_no_gateway_is_raised() -> None:
    refusal = plain(400, b'{"code":"options-invalid"}', "application/problem+json")
    with scripted(refusal, plain(200, b"<html>", "text/html")) as fake:
        async with AsyncGateway(fake.address) as gateway:
            with pytest.raises(GatewayProblem, match="options-invalid"):
                await anext(gateway.subscribe("t"))
            with pytest.raises(AnswerInvalid, match="not text/event-stream"):
                await anext(gateway.subscribe("t"))
    async with AsyncGateway("http://127.0.0.1:1") as gateway:
        with pytest.raises(GatewayUnreachable):
            async with gateway.live("t"):
                pass


async def test_a_live_dict_follows_and_ends(hang: threading.Event) -> None:
    script = stream(hello(), snapshot(1, (["a"], 1)), batch(2, ("publish", ["b"], 2)))
    with scripted(script, stream(hello(), snapshot(3, (["b"], 2)), then_hang=hang)) as fake:
        async with AsyncGateway(fake.address) as gateway, gateway.live("px") as live:
            removed = []
            async for changes in live.changes(HANGS_S):
                removed += [changed.key for changed in changes.removed]
                if dict(live) == {"b": 2}:
                    break
        hang.set()
    assert removed in ([["a"]], [])  # [] where the loop was behind, and both were one
    assert live.end == "CLOSED"
    assert [changes async for changes in live.changes()] != []
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tidegate-live"]


async def test_its_topic_is_deleted_while_its_connection_is_lost() -> None:
    scripts = stream(hello(), snapshot(1, (["a"], 1))), plain(204)
    with scripted(*scripts) as fake:
        async with AsyncGateway(fake.address) as gateway, gateway.live("px") as live:
            async for _ in live.changes(HANGS_S):
                pass
            assert (dict(live), live.end, live.error) == ({}, "REMOVED", None)


async def test_a_step_is_a_whole_snapshot_or_a_whole_flush(hang: threading.Event) -> None:
    script = stream(*in_parts(), then_hang=hang, apart_s=APART_S)
    with scripted(script) as fake:
        async with AsyncGateway(fake.address) as gateway:
            live = gateway.live("px")
            steps = live.changes(HANGS_S)
            assert [len(await anext(steps)) for _ in range(2)] == [2, 2]
            await live.close()
        hang.set()


async def test_a_refusal_shows_where_it_was_raised_and_nothing_of_how_it_was_found() -> None:
    with scripted(REFUSAL) as fake:
        async with AsyncGateway(fake.address) as gateway:
            with pytest.raises(GatewayProblem) as raised:
                await gateway.live("px").ready()
    assert modules_in(raised.value) == ["aio/live.py"]


async def test_a_live_dict_that_is_closed_at_once_has_ended() -> None:
    async with AsyncGateway("http://127.0.0.1:1") as gateway:
        live = gateway.live("px")
        await live.close()
        assert live.end == "CLOSED"
        assert [changes async for changes in live.changes()] == []
