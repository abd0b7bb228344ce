"""Starting and stopping: order, statuses, and that no client can hold a shutdown up."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.clocks.stopwatch import Stopwatch
from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.network.edge_app import Streams, edge_app
from tests.support.servers import edge_settings, running, running_server
from tests.support.wire import Wire, connected, exchange, request
from tidegate.app.http.server import StartFailed, serve
from tidegate.app.http.transport.listener import CannotListen, open_listener

ROOT = Path(__file__).parents[2]
STOP_S_MAX = 3.0


@contextlib.asynccontextmanager
async def gateway_process(**variables: str) -> AsyncIterator[tuple[Process, str]]:
    """A gateway process of its own without an engine, and its address."""
    environment = {**os.environ, "TIDEGATE_PORT": "0", "TIDEGATE_DATA": ":memory:", **variables}
    command = (sys.executable, "-m", "tests.support.network.edge_app")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANGS_S):
            address = (await process.stdout.readline()).decode().strip()
        yield process, address
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def streaming(address: str, path: str) -> AsyncIterator[Wire]:
    """A client of the stream at `path` that has read its first bytes."""
    async with connected(address) as wire:
        await wire.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await wire.read_head()
        yield wire


@contextlib.asynccontextmanager
async def frozen(address: str) -> AsyncIterator[Wire]:
    """A client that stopped reading in the middle of a stream without end."""
    async with streaming(address, "/frozen/") as wire:
        await wire.read_until(b"xxxx")
        wire.freeze()
        yield wire


async def ends(process: Process) -> tuple[int, str]:
    """Exit status and what was logged."""
    async with asyncio.timeout(HANGS_S):
        _, logged = await process.communicate()
    assert process.returncode is not None
    return process.returncode, logged.decode()


@pytest.mark.system
async def test_sigterm_ends_with_an_open_and_a_frozen_stream() -> None:
    async with (
        gateway_process() as (process, address),
        streaming(address, "/calm/") as open_stream,
        frozen(address),
    ):
        await open_stream.read_until(b"hello\n")
        with Stopwatch(process.pid) as watch:
            process.send_signal(signal.SIGTERM)
            await open_stream.read_until(b"goodbye\n")
            status, logged = await ends(process)
        assert watch.taken_s < STOP_S_MAX
        assert status == 0
        assert "1 connections did not end in time and were cut" in logged
        assert "Traceback" not in logged


@pytest.mark.system
async def test_an_interrupt_ends_with_130() -> None:
    async with gateway_process() as (process, _):
        process.send_signal(signal.SIGINT)
        status, logged = await ends(process)
        assert status == 130
        assert "Traceback" not in logged


@pytest.mark.system
async def test_a_second_signal_waits_for_nobody() -> None:
    async with (
        gateway_process(TIDEGATE_SHUTDOWN_GRACE="5m") as (process, address),
        streaming(address, "/calm/") as open_stream,
        frozen(address),
    ):
        process.send_signal(signal.SIGTERM)
        await open_stream.read_until(b"goodbye\n")
        process.send_signal(signal.SIGTERM)
        status, _ = await ends(process)
        assert status == 0


async def test_goodbye_is_said_before_anything_is_closed() -> None:
    settings = edge_settings()
    streams = Streams()
    app = edge_app(settings, streams)
    async with (
        running(app, settings, on_shutdown=streams.say_goodbye) as server,
        streaming(server.address, "/calm/") as stream,
    ):
        await stream.read_until(b"hello\n")
        server.stop()
        assert (await stream.read_to_end()).endswith(b"goodbye\n\r\n0\r\n\r\n")
    assert not server.server_state.connections


async def test_an_idle_connection_does_not_hold_a_shutdown_up() -> None:
    settings = edge_settings(shutdown_grace="5m")
    async with running(edge_app(settings), settings) as server, connected(server.address) as wire:
        await wire.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await wire.read_answer()
        server.stop()
        assert await wire.read_to_end() == b""


async def test_a_farewell_that_fails_does_not_keep_the_server_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ValueError("no farewell")

    settings = edge_settings()
    async with running(edge_app(settings), settings, on_shutdown=fail) as server:
        assert (await exchange(server.address, request())).status == 200
    assert "could not send their goodbye" in caplog.text


async def test_a_farewell_that_hangs_has_the_grace_and_no_more() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    settings = edge_settings(shutdown_grace="50ms")
    async with asyncio.timeout(LOOPS_S):
        async with running_server(edge_app(settings), settings, on_shutdown=hang):
            pass


async def test_two_servers_live_side_by_side() -> None:
    settings = edge_settings()
    async with running_server(edge_app(settings), settings) as first:
        async with running_server(edge_app(settings), settings) as second:
            assert first != second
        assert (await exchange(first, request())).status == 200


async def test_answers_carry_a_date_and_no_name_of_the_server() -> None:
    async with running_server(edge_app(edge_settings())) as address:
        headers = (await exchange(address, request())).headers
    assert "date" in headers
    assert "server" not in headers


async def test_a_forwarded_address_is_not_believed() -> None:
    """B82: the client is who holds the socket, also on loopback."""
    settings = edge_settings()
    app = edge_app(settings)
    seen: list[Scope] = []

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await app(scope, receive, send)

    async with running_server(watching, settings) as address:
        await exchange(
            address, request("/", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https")
        )
    scope = next(scope for scope in seen if scope["type"] == "http")
    assert scope["client"][0] == "127.0.0.1"
    assert scope["scheme"] == "http"


async def test_an_application_that_does_not_start_says_so() -> None:
    @contextlib.asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        if settings.keeps_nothing:
            raise ValueError("no store")
        yield

    settings = edge_settings()
    app = edge_app(settings)
    app.router.lifespan_context = lifespan
    with pytest.raises(StartFailed):
        async with running(app, settings):
            pass


def test_serve_says_when_the_address_is_taken() -> None:
    with contextlib.closing(open_listener(edge_settings())) as taken:
        settings = edge_settings(port=taken.getsockname()[1])
        with pytest.raises(CannotListen, match="already in use"):
            serve(edge_app(settings), settings)
