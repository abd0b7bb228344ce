"""The simulated socket keeps its promises: rate, latency, stalls, cuts, uvicorn's pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.link import Link, Socket
from tests.support.clocks.virtual_loop import SECOND, VirtualLoop, virtual_loop


class Listener:
    """Notes what arrives, and when."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.pieces: list[tuple[int, bytes]] = []
        self.ended: list[tuple[int, bool]] = []

    def started(self, status: int) -> None:
        assert status == 200

    def received(self, text: bytes) -> None:
        self.pieces.append((self.loop.now_ns, text))

    def closed(self, *, orderly: bool) -> None:
        self.ended.append((self.loop.now_ns, orderly))

    @property
    def text(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


Record = Callable[[Socket], Awaitable[None]]


def told(link: Link, record: Record, high_bytes: int = 100) -> tuple[Listener, Socket]:
    """What comes of a record over a link."""
    loop = virtual_loop(1)
    listener = Listener(loop)

    async def main() -> Socket:
        socket = Socket(loop, link, high_bytes, listener)
        await socket.send({"type": "http.response.start", "status": 200})
        await record(socket)
        await asyncio.sleep(100)
        return socket

    return listener, loop.run(main())


async def say(socket: Socket, text: bytes, *, more: bool = True) -> None:
    await socket.send({"type": "http.response.body", "body": text, "more_body": more})


async def a_thousand(socket: Socket) -> None:
    for _ in range(10):
        await say(socket, b"x" * 100)
    await say(socket, b"", more=False)


def test_a_good_line_delivers_at_once() -> None:
    listener, socket = told(Link(), a_thousand)
    assert len(listener.text) == 1_000
    assert listener.ended == [(0, True)]
    assert [sent.wrote_ns for sent in socket.sents] == [0] * 10


def test_a_slow_line_takes_its_time_and_makes_the_writer_wait() -> None:
    link = Link(rate=100, kernel_bytes=50, piece_bytes=10)
    listener, socket = told(link, a_thousand)
    assert listener.ended == [(10 * SECOND, True)]
    assert listener.pieces[0] == (SECOND // 10, b"x" * 10)
    waits = [(sent.wrote_ns or 0) - sent.asked_ns for sent in socket.sents]
    assert waits[0] == waits[1] == 0
    assert any(waits), "writing was paused"


def test_what_is_under_way_arrives_later() -> None:
    listener, _ = told(Link(latency_ns=3 * SECOND), a_thousand)
    assert {at for at, _ in listener.pieces} == {3 * SECOND}
    assert listener.ended == [(3 * SECOND, True)]


def test_a_stalled_peer_takes_nothing_for_a_while() -> None:
    listener, _ = told(Link(stalls=((0, 5 * SECOND),)), a_thousand)
    assert listener.pieces[0][0] >= 5 * SECOND
    assert len(listener.text) == 1_000


def test_a_cut_loses_bytes_under_way_and_the_gateway_notices() -> None:
    async def record(socket: Socket) -> None:
        assert (await socket.receive())["type"] == "http.request"
        await say(socket, b"lost")
        assert (await socket.receive())["type"] == "http.disconnect"
        assert asyncio.get_running_loop().time() == 1
        await say(socket, b"into the void")

    listener, socket = told(Link(latency_ns=2 * SECOND, cut_ns=SECOND), record)
    assert listener.text == b""
    assert listener.ended == [(SECOND, False)]
    assert socket.is_closing


def test_the_gateway_notices_a_silent_cut_late() -> None:
    async def record(socket: Socket) -> None:
        await socket.receive()
        await socket.receive()
        assert asyncio.get_running_loop().time() == 26

    listener, _ = told(Link(cut_ns=SECOND, silent=True), record)
    assert listener.ended == [(SECOND, False)]


def test_a_send_that_is_said_again_is_written_once() -> None:
    async def record(socket: Socket) -> None:
        await say(socket, b"x" * 500)
        message = {"type": "http.response.body", "body": b"y", "more_body": False}
        for _ in range(3):
            try:
                await asyncio.wait_for(socket.send(message), 2)
            except TimeoutError:
                continue
            return

    listener, socket = told(Link(rate=100, kernel_bytes=50), record)
    assert listener.text == b"x" * 500 + b"y"
    assert [sent.text for sent in socket.sents] == [b"x" * 500, b"y"]
    assert socket.sents[1].asked_ns == 0
