"""A simulated socket under one ASGI request: uvicorn's pauses, a kernel's buffer, a link, a peer.

What the gateway writes goes to the transport's buffer, from there to the kernel's, over the link at
its rate, and arrives after its latency. A stalled peer takes nothing; a cut one loses what was
under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from starlette.types import Message

from tests.support.clocks.virtual_loop import SECOND, VirtualLoop

NOTICED_LATE_NS = 25 * SECOND  # keep-alive probes: nobody said that the peer is gone


@dataclass(frozen=True, slots=True)
class Link:
    """What lies between a gateway and one peer, and what happens to it, in times of the loop.

    `rate` in bytes a second, None without bound. `silent`: the gateway is not told of the cut.
    """

    rate: int | None = None
    latency_ns: int = 0
    kernel_bytes: int = 16 << 10
    piece_bytes: int = 1 << 10
    stalls: tuple[tuple[int, int], ...] = ()
    cut_ns: int | None = None
    silent: bool = False

    @property
    def is_free(self) -> bool:
        """Whether it never keeps anybody waiting."""
        return self.rate is None and not self.stalls


@dataclass(slots=True)
class Sent:
    """One send of the application: when it asked, when it was let, and where its bytes end."""

    text: bytes
    asked_ns: int
    wrote_ns: int | None = None
    end: int = 0


class Peer(Protocol):
    """Who is at the link's other end."""

    def started(self, status: int) -> None:
        """The answer's status."""

    def received(self, text: bytes) -> None:
        """Bytes arrived."""

    def closed(self, *, orderly: bool) -> None:
        """Nothing more will."""


class Socket:
    """`tidegate.app.streams.connection.Connection` and the ASGI callables of one request."""

    def __init__(self, loop: VirtualLoop, link: Link, high_bytes: int, peer: Peer) -> None:
        self.sents: list[Sent] = []
        self.is_closing = False
        self.is_given_up = False
        self._loop = loop
        self._link = link
        self._high_bytes = high_bytes
        self._peer = peer
        self._pending: Message | None = None
        self._asked_ns = 0
        self._buffer = bytearray()
        self._kernel = bytearray()
        self._air: deque[tuple[int, bytes]] = deque()
        self._written_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._over = asyncio.Event()
        self._requested = False
        self._ended = False
        self._deaf = False
        self._pumping = False
        if link.cut_ns is not None:
            loop.call_at_ns(link.cut_ns, self._cut)

    # What the application sees

    async def receive(self) -> Message:
        """The request, then its end."""
        if not self._requested:
            self._requested = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """As uvicorn's: waits while writing is paused, and writes into the void when all is over.

        A send that was cancelled as it waited and is said again is the same one.
        """
        if message is not self._pending:
            self._pending, self._asked_ns = message, self._loop.now_ns
            if message.get("body"):
                self.sents.append(Sent(message["body"], self._asked_ns))
        if not self._writable.is_set() and not self.is_closing:
            await self._writable.wait()
        self._pending = None
        if self.is_closing:
            return
        if message["type"] == "http.response.start":
            self._peer.started(message["status"])
            return
        if body := message.get("body", b""):
            self._written_bytes += len(body)
            self.sents[-1].wrote_ns, self.sents[-1].end = self._loop.now_ns, self._written_bytes
            self._buffer += body
            self._flow()
        if not message.get("more_body", False):
            self._ended = True
            self._over.set()
            self._finish()

    @property
    def write_buffer_bytes(self) -> int:
        return len(self._buffer)

    @property
    def taken_mark(self) -> int:
        """The bytes that the peer has acknowledged."""
        in_flight = sum(len(piece) for _, piece in self._air)
        return self._written_bytes - self.unsent_bytes - in_flight

    @property
    def unsent_bytes(self) -> int:
        return len(self._buffer) + len(self._kernel)

    @property
    def round_trip_ns(self) -> int:
        return 2 * self._link.latency_ns

    def give_up(self) -> None:
        """The peer took nothing for too long."""
        self.is_given_up = True
        self.abort()

    def abort(self) -> None:
        """The gateway closes; what is under way is lost."""
        self._gone()
        self._lose()

    # What the link does

    def heal(self) -> None:
        """From now on the link is a good one."""
        self._link = Link(latency_ns=self._link.latency_ns)
        if not self._deaf:
            self._flow()

    def hang_up(self) -> None:
        """The peer leaves, and the gateway knows."""
        self._lose()
        self._gone()

    def _cut(self) -> None:
        if self.is_closing or self._deaf or self._link.cut_ns is None:
            return
        silent = self._link.silent
        self._lose()
        if silent:
            self._loop.call_at_ns(self._loop.now_ns + NOTICED_LATE_NS, self._gone)
        else:
            self._gone()

    def _gone(self) -> None:
        self.is_closing = True
        self._over.set()
        self._writable.set()

    def _lose(self) -> None:
        if not self._deaf:
            self._deaf = True
            self._air.clear()
            self._peer.closed(orderly=False)

    def _flow(self) -> None:
        """From the buffer to the kernel, from there over the link."""
        if self._deaf and not self.is_closing:
            self._fill()
        elif self._link.rate is None and not self._stalled_until():
            self._depart(bytes(self._kernel + self._buffer))
            self._kernel.clear()
            self._buffer.clear()
            self._finish()
        else:
            self._fill()
            self._pump()
        self._set_writable()

    def _fill(self) -> None:
        room = self._link.kernel_bytes - len(self._kernel)
        if room > 0:
            self._kernel += self._buffer[:room]
            del self._buffer[:room]

    def _set_writable(self) -> None:
        if len(self._buffer) > self._high_bytes:
            self._writable.clear()
        elif not self._buffer:
            self._writable.set()

    def _stalled_until(self) -> int:
        now = self._loop.now_ns
        return max((end for start, end in self._link.stalls if start <= now < end), default=0)

    def _pump(self) -> None:
        if self._pumping or not self._kernel:
            return
        self._pumping = True
        stalled_until = self._stalled_until()
        if stalled_until:
            self._loop.call_at_ns(stalled_until, self._take, 0)
            return
        size = min(len(self._kernel), self._link.piece_bytes)
        rate = self._link.rate or 1 << 40
        self._loop.call_at_ns(self._loop.now_ns + size * SECOND // rate, self._take, size)

    def _take(self, size: int) -> None:
        """A piece has left; a stall that began meanwhile is over later."""
        self._pumping = False
        if self._deaf:
            return
        self._depart(bytes(self._kernel[:size]))
        del self._kernel[:size]
        self._flow()
        self._finish()

    def _depart(self, piece: bytes) -> None:
        if not piece:
            return
        if not self._link.latency_ns and not self._air:
            self._peer.received(piece)
            return
        at = self._loop.now_ns + self._link.latency_ns
        self._air.append((at, piece))
        self._loop.call_at_ns(at, self._arrive)

    def _arrive(self) -> None:
        """In order, whatever order the loop calls in."""
        while self._air and self._air[0][0] <= self._loop.now_ns:
            self._peer.received(self._air.popleft()[1])
        self._finish()

    def _finish(self) -> None:
        if self._ended and not (self._buffer or self._kernel or self._air) and not self._deaf:
            self._deaf = self.is_closing = True
            self._peer.closed(orderly=True)
