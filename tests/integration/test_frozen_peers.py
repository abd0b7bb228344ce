"""Peers that stop reading or vanish: what they may cost, and how long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.wire import Wire, connected, request
from tidegate.app.http.protocol import GatewayProtocol
from tidegate.app.streams.connection import Connection
from tidegate.app.streams.socket_stream import SocketStream

WRITE_TIMEOUT_S = 1.0
SHORT = {"write_timeout": "1s"}
LARGE = "x" * 50_000
SWALLOWED_BYTES_MAX = 256 << 10
STUCK_S = 0.3
FLUSHED_S = 0.06


async def freed(wire: Wire) -> None:
    """Wait until not even the kernel has anything left of the gateway's end."""
    ends = wire.transport.get_extra_info("peername"), wire.transport.get_extra_info("sockname")

    def is_freed() -> bool:
        return ends not in {(e.laddr, e.raddr) for e in psutil.net_connections(kind="tcp4")}

    await eventually(is_freed, "the socket is freed")


async def cut_after_s(running: Running, count: int) -> float:
    """How long it takes until so many have been cut."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    await eventually(lambda: given_up(running) == count, "the peer is cut")
    return loop.time() - began_at


def given_up(running: Running) -> int:
    return running.server.figures.given_up


@contextlib.asynccontextmanager
async def frozen_reader(running: Running, target: str) -> AsyncIterator[Wire]:
    """A client that asks and reads nothing of the answer."""
    async with connected(running.address) as wire:
        wire.freeze()
        await wire.send(request(target))
        yield wire


@pytest.mark.system
async def test_accepted_connections_have_the_options_that_make_slowness_visible() -> None:
    """Of a peer that vanished without a word the kernel says so in seconds, not a quarter hour."""
    async with running_gateway(tcp_keepalive="12s") as running, connected(running.address):
        await eventually(lambda: bool(running.server.server_state.connections), "it is accepted")
        [protocol] = running.server.server_state.connections
        accepted = protocol.transport.get_extra_info("socket")
        for option, value in {
            socket.TCP_USER_TIMEOUT: 0,
            socket.TCP_KEEPIDLE: 3,
            socket.TCP_KEEPINTVL: 3,
            socket.TCP_KEEPCNT: 3,
            25: 16 << 10,  # TCP_NOTSENT_LOWAT
        }.items():
            assert accepted.getsockopt(socket.IPPROTO_TCP, option) == value
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.system
@pytest.mark.parametrize("size_bytes", [50_000, pytest.param(1_000, marks=pytest.mark.nightly)])
async def test_a_frozen_stream_swallows_little_before_it_is_known_as_slow(size_bytes: int) -> None:
    """With the kernel's defaults it is four megabytes, and every policy is blind until then."""
    async with running_gateway() as running:
        await running.topic()
        async with running.frozen("conflation=none", query="&command=subscribe"):
            connection = stream_connection(running)
            async with asyncio.timeout(HANGS_S):
                while not await is_stuck(connection):
                    await running.publish({"k": 1, "pad": "x" * size_bytes})
                # Its window stays shut: to look each time takes longer than it may be silent.
                while not connection.write_buffer_bytes:
                    await running.publish({"k": 1, "pad": "x" * size_bytes})
            assert connection.taken_mark + connection.unsent_bytes < SWALLOWED_BYTES_MAX


async def test_no_write_happens_while_asyncio_ends_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If such a write failed, the transport would lose its connection twice, with a traceback."""
    transport: Any = vars(asyncio.selector_events)["_SelectorSocketTransport"]
    name = "_write_sendmsg" if hasattr(transport, "_write_sendmsg") else "_write_ready"
    ready, write = getattr(transport, name), transport.write
    ending: list[object] = []
    nested: list[object] = []
    ended: list[object] = []

    def noted_ready(self: object) -> None:
        ending.append(self)
        try:
            ready(self)
        finally:
            ended.append(ending.pop())

    def noted_write(self: object, data: bytes) -> None:
        if ending:
            nested.append(self)
        write(self, data)

    monkeypatch.setattr(transport, name, noted_ready)
    monkeypatch.setattr(transport, "write", noted_write)
    async with running_gateway() as running:
        await running.topic()
        for k in range(40):
            await running.publish({"k": k, "pad": LARGE})
        async with running.frozen(query="&command=sow") as wire:
            await is_stuck(stream_connection(running))
            wire.thaw()
            assert b"group_end" in await wire.read_to_end()
    assert ended
    assert not nested


async def is_stuck(connection: Connection) -> bool:
    """Whether its peer's window is shut: acknowledgements may take some hundredths of a second."""
    mark, loop = connection.taken_mark, asyncio.get_running_loop()
    until_s = loop.time() + STUCK_S
    while connection.unsent_bytes and loop.time() < until_s:
        await asyncio.sleep(0.002)
    return connection.unsent_bytes > 0 and connection.taken_mark == mark


async def fill(connection: Connection, publish: Callable[[], Awaitable[object]]) -> None:
    """Publish until the peer's window is shut; between two times every lane is flushed."""
    async with asyncio.timeout(HANGS_S):
        while not await is_stuck(connection):
            await publish()
            await asyncio.sleep(FLUSHED_S)


def protocols(running: Running) -> list[Any]:
    """Whatever reads a connection now; uvicorn knows its own kinds alone."""
    return list(running.server.server_state.connections)


def stream_connection(running: Running) -> Connection:
    """The one connection whose answer has not ended."""
    [found] = [
        each.connection
        for each in protocols(running)
        if isinstance(each, SocketStream)
        or (isinstance(each, GatewayProtocol) and each._unanswered())
    ]
    assert isinstance(found, Connection)
    return found


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/v1/topics/px/sow", id="sow-lines"),
        pytest.param("/v1/topics/px/messages?from=epoch", id="journal"),
        pytest.param("/v1/topics/px/subscribe?command=sow", id="stream-of-a-snapshot"),
        pytest.param("/v1/topics/px/subscribe?options=bookmark=epoch", id="stream-of-a-replay"),
    ],
)
async def test_who_asks_for_much_and_takes_nothing_is_cut(target: str) -> None:
    async with running_gateway(**SHORT) as running:
        await running.topic()
        await running.publish(*[{"k": k, "pad": LARGE} for k in range(60)])
        async with frozen_reader(running, target) as wire:
            assert WRITE_TIMEOUT_S <= await cut_after_s(running, 1) < WRITE_TIMEOUT_S + 1
            await freed(wire)
        await eventually(lambda: not sessions(running), "its session ends")


@pytest.mark.system
@pytest.mark.usefixtures("steady")
async def test_an_answer_that_the_socket_took_whole_is_no_reason_to_wait_for_ever() -> None:
    """Nothing of ours waits for the peer any more, only the closing of the connection does."""
    async with running_gateway(**SHORT) as running:
        await running.topic()
        await running.publish({"k": 1, "pad": "x" * 1_000_000})
        async with frozen_reader(running, "/v1/topics/px/sow/%5B1%5D") as wire:
            assert WRITE_TIMEOUT_S <= await cut_after_s(running, 1) < WRITE_TIMEOUT_S + 1
            await freed(wire)


@pytest.mark.parametrize(
    "options", ["conflation=none", "conflation=50ms", "conflation=50ms,pace=key"]
)
async def test_a_frozen_stream_is_cut_busy_or_idle(options: str) -> None:
    await is_cut_busy_or_idle(options)


@pytest.mark.system
@pytest.mark.usefixtures("steady")
async def test_a_frozen_stream_over_tcp_is_cut_busy_or_idle() -> None:
    await is_cut_busy_or_idle("conflation=50ms")


async def is_cut_busy_or_idle(options: str) -> None:
    """Busy: rows go on coming. Idle: its window is full, and then nothing happens any more."""
    async with running_gateway(**SHORT) as running:
        await running.topic()
        for turn, is_busy in enumerate([True, False], 1):
            async with running.frozen(options, query="&command=subscribe") as wire:
                await fill(stream_connection(running), lambda: published_large(running))
                publishing = asyncio.create_task(always(lambda: published_large(running), is_busy))
                assert await cut_after_s(running, turn) < WRITE_TIMEOUT_S + 1
                await freed(wire)
                publishing.cancel()
            await eventually(lambda: not sessions(running), "its session ends")
        assert running.gateway.driver.closed_sessions == {"WRITE_TIMEOUT": 2}


async def test_a_stream_with_little_to_say_is_cut_as_well() -> None:
    """Its writer never has to wait: what fits beside the full window is all there is."""
    async with running_gateway(**SHORT, heartbeat="100ms") as running:
        await running.topic()
        async with running.frozen("conflation=none", query="&command=subscribe"):
            connection = stream_connection(running)
            await fill(connection, lambda: running.publish({"k": 1, "pad": "x" * 4_000}))
            assert not connection.write_buffer_bytes
            assert await cut_after_s(running, 1) < WRITE_TIMEOUT_S + 1
            await eventually(lambda: not sessions(running), "its session ends")
        assert running.gateway.driver.closed_sessions == {"WRITE_TIMEOUT": 1}


async def published_large(running: Running) -> None:
    await running.publish(*[{"k": k, "pad": LARGE} for k in range(3)])


async def always(action: Callable[[], Any], wanted: bool) -> None:
    while wanted:
        await action()
        await asyncio.sleep(FLUSHED_S)


def sessions(running: Running) -> int:
    return running.gateway.driver.engine.stats().sessions


async def test_who_is_sent_away_and_takes_no_goodbye_is_cut_at_once() -> None:
    """Nobody waits the whole write time-out for a peer that is to go anyway; why stays known."""
    async with running_gateway(write_timeout="10m") as running:
        await running.topic()
        async with running.frozen("conflation=none", query="&command=subscribe") as wire:
            await fill(stream_connection(running), lambda: published_large(running))
            session = (await running.http.get("/v1/sessions")).json()["sessions"][0]["session"]
            path = f"/v1/sessions/{session}"
            assert (await running.http.delete(path)).status_code == 204
            await freed(wire)
        shown = (await running.http.get(path)).json()
        assert (shown["state"], shown["reason"]) == ("ended", "CLOSED_BY_ADMIN")


TINY_WINDOW_BYTES = 4_096
SIP_BYTES, SIP_EVERY_S = 500, 0.1
SIPS_FOR_S = 6.0


@pytest.mark.nightly
@pytest.mark.usefixtures("steady")
async def test_who_reads_slowly_through_a_tiny_window_is_not_cut() -> None:
    """Linux counts the time of zero windows together, although the peer reads in between."""
    async with running_gateway(write_timeout="3s", tcp_keepalive="1s") as running:
        await running.topic()
        await running.publish(*[{"k": k, "pad": LARGE} for k in range(10)])
        loop = asyncio.get_running_loop()
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TINY_WINDOW_BYTES)
            reader.setblocking(False)
            url = urlsplit(running.address)
            await loop.sock_connect(reader, (url.hostname, url.port))
            await loop.sock_sendall(reader, request("/v1/topics/px/subscribe"))
            for _ in range(round(SIPS_FOR_S / SIP_EVERY_S)):
                assert await loop.sock_recv(reader, SIP_BYTES), "the stream goes on"
                await asyncio.sleep(SIP_EVERY_S)
        assert not given_up(running)


def stream_connections(running: Running) -> list[Connection]:
    return [
        protocol.connection
        for protocol in protocols(running)
        if isinstance(protocol, SocketStream) and protocol.connection is not None
    ]


async def test_readers_that_never_read_hold_one_flush_and_not_a_copy_each() -> None:
    """asyncio copies what a socket does not take; most of a flush waits where all share it."""
    count, row = 50, "x" * 500
    async with running_gateway(write_timeout="1h") as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        wires = [
            await stack.enter_async_context(
                running.frozen("conflation=50ms", query="&command=subscribe")
            )
            for _ in range(count)
        ]
        await eventually(lambda: len(stream_connections(running)) == count, "all are there")
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        await running.publish(*({"k": key, "v": row} for key in range(2_000)))
        await eventually(
            lambda: all(it.write_buffer_bytes > 500_000 for it in stream_connections(running)),
            "the flush is under way to all",
        )
        grown = tracemalloc.get_traced_memory()[0] - before
        assert grown / count < 200_000  # with what the topic and the lane keep, once
        # A look at its deadline may come between the transport's word and what is written then.
        for stream in protocols(running):
            if isinstance(stream, SocketStream):
                stream.wake()  # by itself from here on
                stream.resume_writing()
                stream._pump()
        # A reader that reads again gets all of it.
        wires[0].thaw()
        raw = bytearray()
        while raw.count(b'"k": ') < 2_000:
            raw += await wires[0].reader.read(1 << 16)
        assert b'"k": 1999' in raw


async def test_readers_that_hold_memory_are_cut_before_a_publisher_is_refused() -> None:
    async with running_gateway(write_timeout="1h") as running:
        await running.topic()
        async with (
            running.frozen("conflation=50ms", query="&command=subscribe"),
            running.subscribe("conflation=50ms", command="subscribe") as healthy,
        ):
            await running.publish(*({"k": key, "v": "x" * 500} for key in range(2_000)))
            await healthy.values(2_000)
            await eventually(
                lambda: any(it.has_kept for it in stream_connections(running)), "it is stuck"
            )
            memory = running.gateway.quotas.memory
            sizes = iter([memory.bytes_max + 1, 0])
            memory._resident = lambda: next(sizes, 0)
            memory._measure_at = None
            await running.publish({"k": "more"})
            assert given_up(running) == 1
            assert await healthy.values(1) == [{"k": "more"}]
