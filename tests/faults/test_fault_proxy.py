"""The proxy injects the faults that it is set to, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import eventually
from tests.support.network.fault_proxy import BLACK_HOLE, STALLED, FaultProxy, Line, fault_proxy

pytestmark = [pytest.mark.usefixtures("steady"), pytest.mark.nightly]

SOON_S = 0.1
LONG = bytes(range(256)) * 16


class Echo:
    """A server that sends back what it receives, and records all of it, in pieces."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.cut = 0

    @property
    def received(self) -> bytes:
        return b"".join(self.pieces)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                self.pieces.append(piece)
                writer.write(piece)
                await writer.drain()
        except ConnectionResetError:
            self.cut += 1
        finally:
            writer.close()


class Caller:
    """A client of the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and return as many bytes of the answer."""
        self.writer.write(request)
        async with asyncio.timeout(HANGS_S):
            return await self.reader.readexactly(len(request))

    async def is_silent(self) -> bool:
        """Whether nothing arrives for a while, not even an end of file."""
        try:
            async with asyncio.timeout(SOON_S):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, FaultProxy]]:
    echo = Echo()
    async with (
        await asyncio.start_server(echo.serve, "127.0.0.1", 0) as server,
        fault_proxy(*server.sockets[0].getsockname()) as proxy,
    ):
        yield echo, proxy


@contextlib.asynccontextmanager
async def calling(proxy: FaultProxy) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_without_faults_all_bytes_and_both_ends_of_file_pass() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        assert await caller.ask(LONG) == LONG
        caller.writer.write_eof()
        assert await caller.reader.read() == b""
        assert (echo.received, echo.cut, proxy.connections) == (LONG, 0, 1)


async def test_latency_and_jitter_delay_and_never_reorder() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        proxy.carry(up=Line(latency_s=0.05, jitter_s=0.05), down=Line(latency_s=0.05))
        began_at = time.monotonic()
        for number in range(50):
            caller.writer.write(b"%03d" % number)
            await asyncio.sleep(0)
        async with asyncio.timeout(HANGS_S):
            answer = await caller.reader.readexactly(150)
        assert time.monotonic() - began_at >= 0.1
        assert answer == echo.received == b"".join(b"%03d" % number for number in range(50))


async def test_a_limited_rate_is_kept_to() -> None:
    async with echoing() as (_, proxy), calling(proxy) as caller:
        proxy.carry(down=Line(bytes_per_s=20_000, slice_bytes=100))
        began_at = time.monotonic()
        assert await caller.ask(LONG) == LONG
        assert time.monotonic() - began_at >= len(LONG) / 20_000


async def test_slices_arrive_one_by_one() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        proxy.carry(up=Line(slice_bytes=1, bytes_per_s=5_000))
        assert await caller.ask(LONG[:64]) == LONG[:64]
        assert len(echo.pieces) > 16


async def test_one_bit_in_every_100_bytes_is_flipped() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        proxy.carry(down=Line(flip_one_in_bytes=100))
        arrived = await caller.ask(LONG[:250]) + await caller.ask(LONG[:250])
        sent = LONG[:250] * 2
        wrong = [place for place, (a, b) in enumerate(zip(arrived, sent, strict=True)) if a != b]
        assert wrong == [99, 199, 299, 399, 499]
        assert all((arrived[place] ^ sent[place]).bit_count() == 1 for place in wrong)
        assert echo.received == sent


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_black_hole_is_silent_and_its_connections_are_reset_after_it(way: str) -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        assert await caller.ask(b"before") == b"before"
        proxy.carry(**{way: BLACK_HOLE})
        caller.writer.write(b"lost")
        assert await caller.is_silent()
        assert (b"lost" in echo.received) is (way == "down")
        proxy.clear()
        with pytest.raises(ConnectionResetError):
            await caller.ask(b"after")
        await eventually(lambda: echo.cut == 1, "the server's end is reset")
        async with calling(proxy) as another:
            assert await another.ask(b"new") == b"new"


async def test_a_connection_that_lost_nothing_in_a_black_hole_continues() -> None:
    async with echoing() as (_, proxy), calling(proxy) as caller:
        assert await caller.ask(b"before") == b"before"
        proxy.carry(up=BLACK_HOLE, down=BLACK_HOLE)
        proxy.clear()
        assert await caller.ask(b"after") == b"after"


async def test_a_stall_closes_the_window_and_loses_nothing() -> None:
    much = LONG * 2048  # 8 MiB: more than the buffers of a connection take
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        proxy.carry(up=STALLED)
        caller.writer.write(much)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S):
                await caller.writer.drain()
        assert echo.received == b""
        proxy.clear()
        async with asyncio.timeout(HANGS_S):
            assert await caller.reader.readexactly(len(much)) == much
        assert echo.cut == 0


async def test_the_reply_to_the_nth_request_is_lost_after_the_server_did_the_work() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        proxy.drop_reply(2, matching=b"write")
        for request in (b"read 1", b"write 1", b"read 2"):
            assert await caller.ask(request) == request
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await caller.ask(b"write 2")
        assert echo.received.endswith(b"write 2")
        assert proxy.lost_replies == 1
        async with calling(proxy) as another:
            assert await another.ask(b"write 3") == b"write 3"


async def test_after_a_lost_reply_connections_are_refused_if_set() -> None:
    async with echoing() as (_, proxy), calling(proxy) as caller, calling(proxy) as other:
        assert await other.ask(b"before") == b"before"
        proxy.drop_reply(then_refuse=True)
        for each in (caller, other):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await each.ask(b"lost")
        with pytest.raises(ConnectionResetError):
            async with calling(proxy) as another:
                await another.ask(b"again?")
        proxy.clear()
        async with calling(proxy) as another:
            assert await another.ask(b"again") == b"again"


async def test_refuse_resets_both_ends_and_each_new_connection() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        assert await caller.ask(b"before") == b"before"
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            await caller.ask(b"after")
        await eventually(lambda: echo.cut == 1, "the server's end is reset")
        with pytest.raises(ConnectionResetError):
            async with calling(proxy) as another:
                await another.ask(b"new")
        proxy.clear()
        async with calling(proxy) as another:
            assert await another.ask(b"new") == b"new"


async def test_new_connections_go_to_another_server() -> None:
    async with (
        echoing() as (echo, proxy),
        echoing() as (other, behind),
        calling(proxy) as caller,
    ):
        assert await caller.ask(b"one") == b"one"
        proxy.lead_to("127.0.0.1", behind.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await caller.ask(b"after")
        async with calling(proxy) as another:
            assert await another.ask(b"two") == b"two"
        assert (echo.received, other.received) == (b"one", b"two")


async def test_without_a_server_a_caller_is_reset() -> None:
    async with echoing() as (_, proxy):
        pass
    async with fault_proxy("127.0.0.1", proxy.port) as alone:
        with pytest.raises(ConnectionResetError):
            async with calling(alone) as caller:
                await caller.ask(b"anybody?")


async def test_a_connection_is_cut_after_some_bytes_of_an_answer() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as caller:
        proxy.carry(down=Line(cut_after_bytes=10))
        assert await caller.ask(b"seven b") == b"seven b"
        caller.writer.write(b"more than three")
        async with asyncio.timeout(HANGS_S):
            with pytest.raises(ConnectionResetError):
                await caller.reader.readexactly(100)
        assert echo.received == b"seven bmore than three"
