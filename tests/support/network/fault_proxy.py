"""A TCP proxy for loopback that injects faults: delays, low rates, silence, resets, wrong bits."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

PIECE_BYTES = 64 << 10
PIECES_AHEAD_MAX = 256
BUFFER_BYTES = 32 << 10  # small, so that the window of a stalled connection closes soon
RST_ON_CLOSE = struct.pack("ii", 1, 0)  # linger on, for no time

Way = Literal["up", "down"]
"""To the server, to the client."""

Ahead = asyncio.Queue[tuple[float, bytes]]
"""Pieces on their way, each with the moment at which it arrives; an empty one is the end."""


@dataclass(frozen=True, slots=True)
class Line:
    """The faults of one direction of all connections.

    Attributes:
        latency_s: how much later each piece arrives.
        jitter_s: the most that is added to that, at random; pieces never overtake each other.
        bytes_per_s: the rate; 0: that of loopback.
        slice_bytes: pieces arrive in slices of so many bytes; 0: as they arrive.
        flip_one_in_bytes: the last of every so many bytes has a flipped bit; 0: none.
        swallows: bytes are lost (a black hole); connections that lost some are reset afterwards.
        stalls: nothing is read, so that the sender's window closes.
        cut_after_bytes: a connection is reset after so many bytes; 0: never.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = 0.0
    slice_bytes: int = 0
    flip_one_in_bytes: int = 0
    swallows: bool = False
    stalls: bool = False
    cut_after_bytes: int = 0


CLEAR = Line()
BLACK_HOLE = Line(swallows=True)
STALLED = Line(stalls=True)


class FaultProxy:
    """Forwards connections to a server, with faults that may change at any moment.

    A request is what a client sends first, or after an answer.

    Attributes:
        port: where it listens, on loopback.
        connections: how many were accepted so far.
        lost_replies: how many replies were dropped so far.
    """

    def __init__(self, host: str, port: int, *, seed: int = 0) -> None:
        self.connections = 0
        self.lost_replies = 0
        self.chance = random.Random(seed)
        self.lines: dict[Way, Line] = {"up": CLEAR, "down": CLEAR}
        self._server = host, port
        self._changed = asyncio.Event()
        self._refuses = False
        self._requests_to_go = 0
        self._refuses_then = False
        self._mark = b""
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]

    def carry(self, *, up: Line | None = None, down: Line | None = None) -> None:
        """Set the faults of one or both directions."""
        self.lines |= {"up": up or self.lines["up"], "down": down or self.lines["down"]}
        for link in [link for link in self._links if link.has_lost(self.lines)]:
            link.reset()
        self._changed.set()
        self._changed = asyncio.Event()

    def lead_to(self, host: str, port: int) -> None:
        """Forward new connections to another server, and reset those that are open."""
        self._server = host, port
        self.reset()

    def clear(self) -> None:
        """Remove all faults, and accept connections again."""
        self._refuses = False
        self.carry(up=CLEAR, down=CLEAR)

    def refuse(self) -> None:
        """Reset every connection, and each new one."""
        self._refuses = True
        self.reset()

    def reset(self) -> None:
        """Send RST to both ends of every connection."""
        for link in list(self._links):
            link.reset()

    def drop_reply(
        self, number: int = 1, matching: bytes = b"", *, then_refuse: bool = False
    ) -> None:
        """Reset the connection of the n-th request from now once the server answers it.

        Only requests with `matching` in their first piece count. The server has done the work, and
        the client cannot know. With `then_refuse` connections are refused until `clear`.
        """
        self._requests_to_go, self._mark = number, matching
        self._refuses_then = then_refuse

    def reply_lost(self) -> None:
        """Count a reply that was dropped."""
        self.lost_replies += 1
        if self._refuses_then:
            self.refuse()

    def loses_reply_to(self, first_piece: bytes) -> bool:
        """Whether the reply to this request is to be dropped."""
        if self._requests_to_go == 0 or self._mark not in first_piece:
            return False
        self._requests_to_go -= 1
        return self._requests_to_go == 0

    async def while_stalled(self, way: Way) -> None:
        """Return when this direction is read again."""
        while self.lines[way].stalls:
            await self._changed.wait()

    async def serve(self) -> None:
        """Accept connections until cancelled."""
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            self.connections += 1
            task = asyncio.create_task(self._carry(_Link(self, client)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop listening, and reset all connections."""
        self._listener.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, link: _Link) -> None:
        self._links.add(link)
        try:
            with contextlib.suppress(OSError):
                if not self._refuses:
                    await link.run(self._server)
                    link.close(with_rst=False)
        finally:
            self._links.discard(link)
            link.close(with_rst=True)


class _Link:
    """A connection of a client and one to the server, and the bytes between them."""

    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = socket.socket()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._lost: set[Way] = set()
        self._asking = False
        self._loses_reply = False
        self._bytes_since_flip: dict[Way, int] = {"up": 0, "down": 0}
        self._carried: dict[Way, tuple[Line, int]] = {"up": (CLEAR, 0), "down": (CLEAR, 0)}
        self._reset = asyncio.Event()

    def has_lost(self, lines: dict[Way, Line]) -> bool:
        """Whether bytes were lost in a direction that passes bytes again."""
        return any(not lines[way].swallows for way in self._lost)

    def reset(self) -> None:
        """Have both ends reset."""
        self._reset.set()

    def close(self, *, with_rst: bool) -> None:
        """Close both ends."""
        for end in (self._client, self._server):
            if with_rst and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
            end.close()

    async def run(self, address: tuple[str, int]) -> None:
        """Forward both directions until both have ended.

        Raises:
            OSError: the link was reset, or there is no server.
        """
        for end in (self._client, self._server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(self._server, address)
        cut = asyncio.create_task(self._reset.wait())
        ways = [asyncio.create_task(self._way("up")), asyncio.create_task(self._way("down"))]
        both = asyncio.gather(*ways)
        try:
            either: set[asyncio.Future[Any]] = {cut, both}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not both.done():
                raise ConnectionResetError
            await both
        finally:
            await _ended(cut, *ways, both)

    async def _way(self, way: Way) -> None:
        ahead: Ahead = asyncio.Queue(PIECES_AHEAD_MAX)
        source, sink = (self._client, self._server)[:: 1 if way == "up" else -1]
        reading = asyncio.create_task(self._read(way, source, ahead))
        writing = asyncio.create_task(self._write(way, sink, ahead))
        try:
            await asyncio.gather(reading, writing)
        finally:
            await _ended(reading, writing)

    async def _read(self, way: Way, source: socket.socket, ahead: Ahead) -> None:
        loop, due = asyncio.get_running_loop(), 0.0
        piece = b"none yet"
        while piece:
            await self._proxy.while_stalled(way)
            piece = await loop.sock_recv(source, PIECE_BYTES)
            await self._proxy.while_stalled(way)
            line = self._proxy.lines[way]
            if line.swallows:
                self._lost.add(way)
                continue
            self._track_request(way, piece)
            due = max(
                due, loop.time() + line.latency_s + line.jitter_s * self._proxy.chance.random()
            )
            await ahead.put((due, piece))

    def _track_request(self, way: Way, piece: bytes) -> None:
        """Tell requests from replies; the reply that is to be dropped resets the link."""
        if way == "up" and not self._asking:
            self._loses_reply = self._proxy.loses_reply_to(piece)
        self._asking = way == "up"
        if way == "down" and self._loses_reply:
            self._proxy.reply_lost()
            self.reset()
            raise ConnectionResetError

    async def _write(self, way: Way, sink: socket.socket, ahead: Ahead) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, piece = await ahead.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                sink.shutdown(socket.SHUT_WR)
                return
            line = self._proxy.lines[way]
            piece = self._flipped(way, piece, line.flip_one_in_bytes)
            piece, is_cut = self._cut(way, piece, line)
            step = line.slice_bytes or len(piece)
            for start in range(0, len(piece), step):
                part = piece[start : start + step]
                await loop.sock_sendall(sink, part)
                await asyncio.sleep(len(part) / line.bytes_per_s if line.bytes_per_s else 0)
            if is_cut:
                self.reset()
                return

    def _cut(self, way: Way, piece: bytes, line: Line) -> tuple[bytes, bool]:
        """Return the part of a piece to send, and whether the connection is reset after it."""
        since, carried = self._carried[way]
        carried = len(piece) + (carried if since is line else 0)
        self._carried[way] = line, carried
        excess = carried - line.cut_after_bytes
        if not line.cut_after_bytes or excess < 0:
            return piece, False
        return piece[: len(piece) - excess], True

    def _flipped(self, way: Way, piece: bytes, one_in_bytes: int) -> bytes:
        if not one_in_bytes:
            return piece
        wrong = bytearray(piece)
        for place in range(
            one_in_bytes - 1 - self._bytes_since_flip[way], len(piece), one_in_bytes
        ):
            wrong[place] ^= 1 << self._proxy.chance.randrange(8)
        self._bytes_since_flip[way] = (self._bytes_since_flip[way] + len(piece)) % one_in_bytes
        return bytes(wrong)


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks, and wait until all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def fault_proxy(host: str, port: int, *, seed: int = 0) -> AsyncIterator[FaultProxy]:
    """A proxy in front of a server; it and its connections are closed at the end."""
    proxy = FaultProxy(host, port, seed=seed)
    serving = asyncio.create_task(proxy.serve())
    try:
        yield proxy
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await proxy.aclose()
