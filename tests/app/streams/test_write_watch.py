"""The write watch, on sockets whose peers read what the test says; one test has real TCP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from tests.support.clocks.jumping_loop import JumpingLoop
from tests.support.deadlines import HANGS_S
from tests.support.network.memory import MemorySocket
from tidegate.app.figures import ConnectionFigures
from tidegate.app.streams import connection as watched
from tidegate.app.streams.connection import Connection, WriteWatch
from tidegate.app.streams.scheduler import StreamScheduler

pytestmark = pytest.mark.usefixtures("steady")

TIMEOUT_S = 0.25
MORE_THAN_BUFFERS = b"x" * (8 << 20)


class Pair:
    """A watched connection, and the far end as a bare socket that reads on request."""

    def __init__(self, transport: asyncio.Transport, far: socket.socket) -> None:
        self.figures = ConnectionFigures(1)
        self.connection = Connection(transport, lambda: None, self.figures)
        self.watch = WriteWatch(TIMEOUT_S, StreamScheduler())
        self.transport = transport
        self.far = far

    def write(self, piece: bytes) -> None:
        self.transport.write(piece)
        self.watch.note_write(self.connection)

    async def read(self, size_bytes: int) -> int:
        loop = asyncio.get_running_loop()
        return len(await loop.sock_recv(self.far, size_bytes))

    async def given_up_after_s(self) -> float:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        async with asyncio.timeout(HANGS_S):
            while not self.connection.is_given_up:
                await asyncio.sleep(0.005)
        return loop.time() - began_at


def pair_in_memory() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    return MemorySocket(near, ("127.0.0.1", 1), ("127.0.0.1", 2)), far


def pair_of_tcp() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    return near, far


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    loop = asyncio.get_running_loop()
    near, far = pair_in_memory() if isinstance(loop, JumpingLoop) else pair_of_tcp()
    far.setblocking(False)
    near.setblocking(False)
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=near)
    assert isinstance(transport, asyncio.Transport)
    with far:
        yield Pair(transport, far)
        transport.abort()
    await asyncio.sleep(0)


async def test_a_peer_that_takes_nothing_is_cut_in_time() -> None:
    async with pair() as frozen:
        frozen.write(MORE_THAN_BUFFERS)
        assert TIMEOUT_S <= await frozen.given_up_after_s() < 2 * TIMEOUT_S
        assert frozen.figures.given_up == 1
        assert frozen.connection.unsent_bytes == 0


async def test_a_connection_that_is_being_closed_is_watched_to_its_end() -> None:
    """asyncio waits for the last byte, and a frozen peer would have it wait for ever."""
    async with pair() as frozen:
        frozen.write(MORE_THAN_BUFFERS)
        frozen.transport.close()
        assert TIMEOUT_S <= await frozen.given_up_after_s() < 2 * TIMEOUT_S


async def test_slow_is_not_frozen() -> None:
    async with pair() as slow:
        slow.write(MORE_THAN_BUFFERS)
        left_bytes = len(MORE_THAN_BUFFERS)
        async with asyncio.timeout(HANGS_S):
            while left_bytes:  # in all much longer than the time-out
                await asyncio.sleep(TIMEOUT_S / 10)
                left_bytes -= await slow.read(256 << 10)
        assert not slow.connection.is_given_up


async def test_what_was_taken_is_forgotten_and_silence_costs_no_timer() -> None:
    async with pair() as quick:
        quick.write(b"x")
        assert await quick.read(1) == 1
        async with asyncio.timeout(HANGS_S):
            while quick.watch._is_armed:
                await asyncio.sleep(0.005)
        assert not quick.watch._waiting
        await asyncio.sleep(2 * TIMEOUT_S)
        assert not quick.connection.is_given_up
        assert not quick.watch._is_armed


async def test_what_has_ended_is_kept_for_no_look() -> None:
    async with pair() as frozen:
        frozen.write(MORE_THAN_BUFFERS)
        async with asyncio.timeout(HANGS_S):
            while not frozen.watch._waiting:
                await asyncio.sleep(0.001)
        frozen.write(b"x")
        frozen.watch.forget(frozen.connection)
        assert not frozen.watch._written
        assert not frozen.watch._waiting


async def an_iteration() -> None:
    """One iteration of the loop, which takes a millisecond."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    loop.clock.jump(0.001)
    await asyncio.sleep(0)


async def test_a_crowd_that_takes_nothing_is_cut_one_by_one() -> None:
    async with contextlib.AsyncExitStack() as stack:
        pairs = [await stack.enter_async_context(pair()) for _ in range(5)]
        for each in pairs:
            each.watch = pairs[0].watch
            each.write(MORE_THAN_BUFFERS)
        given_up = [0]
        async with asyncio.timeout(HANGS_S):
            while given_up[-1] < len(pairs):
                await an_iteration()
                each_given_up = [each.connection.is_given_up for each in pairs]
                assert each_given_up == sorted(each_given_up, reverse=True), "oldest write first"
                given_up.append(sum(each_given_up))
        assert max(now - before for before, now in pairwise(given_up)) == 1


async def test_what_is_written_while_a_crowd_is_looked_at_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watched, "CHECKED_AT_ONCE", 1)
    async with pair() as quick, pair() as other, pair() as frozen:
        other.watch = frozen.watch = quick.watch
        quick.write(b"x")
        other.write(b"x")
        async with asyncio.timeout(HANGS_S):
            while quick.watch._written:
                await an_iteration()
        frozen.write(MORE_THAN_BUFFERS)  # one of the two is still to be looked at
        await frozen.given_up_after_s()


@pytest.mark.system
async def test_over_tcp_a_peer_is_cut_when_the_kernel_has_sent_it_nothing_in_time() -> None:
    """A stream that writes little never has to wait; its peer is cut all the same.

    Over TCP the kernel says what was acknowledged, and its buffers hide a full window.
    """
    async with pair() as frozen, pair() as slow:
        slow.write(MORE_THAN_BUFFERS)
        reading = asyncio.create_task(read_slowly(slow, 6 << 20))
        await small_writes_until_given_up(frozen)
        await reading
        assert not slow.connection.is_given_up


async def read_slowly(slow: Pair, size_bytes: int) -> None:
    """Read much longer than the time-out, and something well within each."""
    while size_bytes > 0:
        await asyncio.sleep(TIMEOUT_S / 10)
        size_bytes -= await slow.read(256 << 10)


async def small_writes_until_given_up(frozen: Pair) -> None:
    while not frozen.connection.write_buffer_bytes:
        frozen.write(b"x" * 4096)
    async with asyncio.timeout(HANGS_S):
        while not frozen.connection.is_given_up:
            frozen.write(b": heartbeat\n\n")
            await asyncio.sleep(TIMEOUT_S / 20)


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_a_peer_that_left_has_nothing_to_take(is_orderly: bool) -> None:
    async with pair() as leaving:
        leaving.write(b"x" * 100_000)
        if is_orderly:
            leaving.far.shutdown(socket.SHUT_RDWR)
        leaving.far.close()  # with bytes unread: a reset
        async with asyncio.timeout(HANGS_S):
            while not leaving.connection.is_closing:
                await asyncio.sleep(0.001)
        assert leaving.connection.unsent_bytes == 0
        assert not leaving.connection.is_given_up
