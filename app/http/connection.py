"""The connection under a request: what a stream may know of its transport, below ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Message, Receive, Scope, Send

from tidegate.app.figures import ConnectionFigures
from tidegate.app.http.memory import undo_ring
from tidegate.app.http.problems import TRANSPORT_EXTENSION

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if sys.platform == "linux":
    import fcntl
    import termios

FIGURES_EXTENSION: Final = "tidegate.connections"

# A larger text goes to the transport in pieces, as the socket takes them: asyncio copies what
# a socket does not take, and many streams have the same text.
PIECE_BYTES: Final = 32 << 10

# In Linux's struct tcp_info: tcpi_bytes_acked, a count since the connection began, and
# tcpi_min_rtt in microseconds, all ones while unknown.
BYTES_ACKED: Final = slice(120, 128)
SHORTEST_ROUND_TRIP: Final = slice(148, 152)
TCP_INFO_BYTES: Final = 152
UNKNOWN_US: Final = (1 << 32) - 1
NO_DESCRIPTOR: Final = -1

# Close with a reset: otherwise the kernel keeps offering the rest to a peer that takes nothing.
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


# As a gateway names the client to another one; from a client's own request it is not taken.
CERTIFICATE_FIELD: Final = b"tidegate-certificate"
NAME_KINDS: Final = ("DNS", "URI", "email")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,255}")


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client's certificate that an authority of ours has signed."""

    name: str
    expires_ms: int

    @classmethod
    def of(cls, verified: Mapping[str, Any]) -> ClientCertificate | None:
        """Return the certificate as Python's `getpeercert` shows it; None for one without a name.

        The name is the first DNS name, URI or e-mail address, else the common name.
        """
        alternatives = verified.get("subjectAltName", ())
        attributes = [pair for part in verified.get("subject", ()) for pair in part]
        names = [value for kind, value in alternatives if kind in NAME_KINDS]
        names += [value for name, value in attributes if name == "commonName"]
        if not names or not _NAME.fullmatch(names[0]):
            return None
        return cls(names[0], int(ssl.cert_time_to_seconds(verified["notAfter"]) * 1_000))

    def field(self) -> tuple[bytes, bytes]:
        """Return the header field of a call to another gateway."""
        return CERTIFICATE_FIELD, f"{self.expires_ms} {self.name}".encode()

    @classmethod
    def of_field(cls, value: bytes) -> ClientCertificate:
        """Return the certificate that another gateway has verified."""
        expires_ms, _, name = value.decode().partition(" ")
        return cls(name, int(expires_ms))


class Connection:
    """The transport under a request, which ASGI has no words for.

    Args:
        transport: the connection's transport.
        on_abort: ends the requests of the connection. The transport reports the loss
            only in the loop's next turn; for a stream that returns before that, the server would
            log an incomplete response.
        figures: counts the connections that are given up.
    """

    __slots__ = (
        "_figures", "_kept", "_kept_bytes", "_on_abort", "_transport", "has_rested", "is_given_up",
        "place", "rests_since", "socket",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        on_abort: Callable[[], None],
        figures: ConnectionFigures,
    ) -> None:
        self.is_given_up = False
        self.rests_since = 0  # in requests of all connections; `Paces` counts them
        self.has_rested = False  # before the request that is read now
        self.place: int | None = None  # among those that rested, for one more read
        # What a stream has still to hand to the transport: parts of texts that others have too.
        self._kept: list[memoryview] = []  # a deque would cost each idle connection 0.6 KiB
        self._kept_bytes = 0
        self._transport = transport
        self._on_abort = on_abort
        self._figures = figures
        # Not its descriptor: the number is used again after the close. And not asyncio's view of
        # it, which cannot write.
        view = transport.get_extra_info("socket")
        self.socket: socket.socket | None = getattr(view, "_sock", view)

    def write(self, framed: bytes | memoryview) -> None:
        """Hand bytes of a stream to the transport, as many as it takes; the others are kept.

        Whoever is told that the transport has room again calls `write_kept`.
        """
        if len(framed) <= PIECE_BYTES and not self._kept:
            self._transport.write(framed)
            return
        self._kept.append(memoryview(framed))
        self._kept_bytes += len(framed)
        self.write_kept()

    @property
    def has_kept(self) -> bool:
        """True if some of what a stream has written is still to be handed to the transport."""
        return bool(self._kept)

    @property
    def is_full(self) -> bool:
        """True while the transport has told its stream to pause."""
        transport = self._transport
        return transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]

    def write_kept(self) -> None:
        """Hand on what was kept, while the transport has room."""
        transport = self._transport
        while self._kept and not self.is_full:
            if transport.is_closing():
                self._forget_kept()
                break
            piece, rest = self._kept[0][:PIECE_BYTES], self._kept[0][PIECE_BYTES:]
            if rest:
                self._kept[0] = rest
            else:
                del self._kept[0]
            self._kept_bytes -= len(piece)
            transport.write(piece)

    def _forget_kept(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def abort(self) -> None:
        """Close the socket with a reset, and free what the kernel holds for it."""
        if self.socket is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self._forget_kept()
        self._transport.abort()
        self._on_abort()

    def release_requests(self) -> None:
        """Forget the requests of the connection: a stream has taken it over."""
        self._on_abort = _no_requests
        # asyncio keeps the addresses of both ends as objects, 400 bytes that nobody asks for now.
        getattr(self._transport, "_extra", {}).clear()

    def free(self) -> None:
        """Let the transport be freed at once, as it is lost."""
        self._forget_kept()
        undo_ring(self._transport)

    def give_up(self) -> None:
        """Abort and count a connection whose peer took nothing for too long."""
        if not self.is_given_up:
            self.is_given_up = True
            self._figures.given_up += 1
        self.abort()

    @property
    def certificate(self) -> ClientCertificate | None:
        """The client's certificate, if TLS has verified one."""
        found: ClientCertificate | None = self._transport.get_extra_info("tidegate.certificate")
        return found

    @property
    def is_closing(self) -> bool:
        """True once the connection is closed or about to be."""
        return self._transport.is_closing()

    @property
    def write_buffer_bytes(self) -> int:
        """Bytes that the socket has not taken: in asyncio's buffer, and kept for it."""
        return self._transport.get_write_buffer_size() + self._kept_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes in asyncio's buffer and, on Linux, unacknowledged ones in the kernel's.

        Costs a system call, about a microsecond. A closed connection has none: the kernel would go
        on counting bytes that a peer which left can never acknowledge.
        """
        buffered_bytes = self.write_buffer_bytes
        if not buffered_bytes and self._transport.is_closing():
            return 0
        return buffered_bytes + self._unacknowledged_bytes()

    @property
    def taken_mark(self) -> int:
        """A number that changes whenever the peer has taken something; only compare for equality.

        On Linux the bytes acknowledged so far; elsewhere what is left in asyncio's buffer.
        """
        acked_bytes = self._info(BYTES_ACKED)
        return self.write_buffer_bytes if acked_bytes is None else acked_bytes

    @property
    def round_trip_ns(self) -> int:
        """The shortest round trip of the last minutes on Linux; elsewhere 0."""
        shortest_us = self._info(SHORTEST_ROUND_TRIP)
        return 0 if shortest_us is None or shortest_us == UNKNOWN_US else shortest_us * 1_000

    def _info(self, part: slice) -> int | None:
        """Return a figure of the kernel's tcp_info; None where it has none."""
        if sys.platform != "linux" or self.descriptor < 0:
            return None
        assert self.socket is not None
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        return int.from_bytes(info[part], sys.byteorder) if len(info) >= part.stop else None

    def _unacknowledged_bytes(self) -> int:
        number = self.descriptor
        if sys.platform != "linux" or number < 0:
            return 0
        answer = fcntl.ioctl(number, termios.TIOCOUTQ, b"\0\0\0\0")  # SIOCOUTQ
        return int.from_bytes(answer, sys.byteorder)

    @property
    def descriptor(self) -> int:
        """The socket's number; none once it is closed."""
        return NO_DESCRIPTOR if self.socket is None else self.socket.fileno()


def _no_requests() -> None:
    """Do nothing: no request waits."""


def connection_of(scope: Scope) -> Connection | None:
    """Return the connection under a request; None under a server that is not ours."""
    connection: Connection | None = scope.get("extensions", {}).get(TRANSPORT_EXTENSION)
    return connection


def figures_of(scope: Scope) -> ConnectionFigures | None:
    """Return the figures of the server that got a request; None for a server that is not ours.

    An internal call came through no server: it uses the figures of its application's server.
    """
    figures: ConnectionFigures | None = scope.get("extensions", {}).get(FIGURES_EXTENSION)
    return figures or getattr(scope["app"].state, "figures", None)


LOOKS_PER_TIMEOUT: Final = 10  # a peer is cut at most two looks after its time
LOOKED_AT_ONCE: Final = 100  # connections in one turn of the loop, a few us each

logger = logging.getLogger("tidegate.connections")


class Deadline:
    """The time within which a connection must get something done, one at a time."""

    __slots__ = ("_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, passed: Callable[[], object]) -> None:
        """Call `passed` after so many seconds, unless a deadline runs already."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._pass, passed)

    def end(self) -> None:
        """Call nothing: it is done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pass(self, passed: Callable[[], object]) -> None:
        self._timer = None
        passed()


class WriteDeadline:
    """Decides when a peer is cut. Slow is not frozen: each byte taken starts the time again.

    Args:
        write_timeout_s: seconds without a byte taken.
        mark: the connection's `taken_mark` as the wait begins.
        now_s: the time then, in seconds that never go back.
        farewell_s: seconds that a closed session has in all, to take what is under way and its
            goodbye, however slowly.
    """

    __slots__ = ("_closed_at_s", "_farewell_s", "_mark", "_took_at_s", "_write_timeout_s")

    def __init__(
        self, write_timeout_s: float, mark: int, now_s: float, *, farewell_s: float = math.inf
    ) -> None:
        self._write_timeout_s = write_timeout_s
        self._farewell_s = farewell_s
        self._mark = mark
        self._took_at_s = now_s
        self._closed_at_s: float | None = None

    def is_over(self, mark: int, now_s: float, *, is_closed: bool = False) -> bool:
        """Return True once the peer is to be cut; `is_closed`: its session has been closed."""
        if mark != self._mark:
            self._mark, self._took_at_s = mark, now_s
        if is_closed and self._closed_at_s is None:
            self._closed_at_s = now_s
        if self._closed_at_s is not None and now_s - self._closed_at_s >= self._farewell_s:
            return True
        return now_s - self._took_at_s >= self._write_timeout_s


class WriteWatch:
    """Cuts the connections of one server that are past their deadline.

    A stream that waits to write checks its own deadline. The watch covers writes that no task waits
    for: an answer handed to the socket whole, the rest of a connection that is being closed, the
    last rows of a stream that has nothing new to send. A connection without unsent bytes costs
    nothing.
    """

    def __init__(self, write_timeout_s: float) -> None:
        self._write_timeout_s = write_timeout_s
        self._written: set[Connection] = set()
        self._written_groups: set[Callable[[], Iterable[Connection]]] = set()
        # Connections with unsent bytes.
        self._waiting: dict[Connection, WriteDeadline] = {}
        self._next_look: asyncio.TimerHandle | None = None

    def around(self, app: Any, connection: Connection) -> Any:
        """Return the ASGI application with each of its sends under the watch."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            async def watched_send(message: Message) -> None:
                await send(message)
                self.note_write(connection)

            await app(scope, receive, watched_send)

        return watched

    def note_write(self, connection: Connection) -> None:
        """Check the connection soon: bytes were written."""
        self._written.add(connection)
        if self._next_look is None:
            self._arm(asyncio.get_running_loop())

    def note_group(self, connections: Callable[[], Iterable[Connection]]) -> None:
        """Check connections soon: bytes were written to all that the function returns."""
        self._written_groups.add(connections)
        if self._next_look is None:
            self._arm(asyncio.get_running_loop())

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        wait_s = self._write_timeout_s / LOOKS_PER_TIMEOUT
        self._next_look = loop.call_later(wait_s, self._look, loop)

    def forget(self, connection: Connection) -> None:
        """Check a connection no more, and free it: it is lost. A crowd would wait for the look."""
        self._written.discard(connection)
        self._waiting.pop(connection, None)
        connection.free()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        watched = self._written.union(self._waiting, *(each() for each in self._written_groups))
        self._written.clear()
        self._written_groups.clear()
        before, self._waiting = self._waiting, {}
        self._look_on(loop, [*watched], before)

    def _look_on(
        self, loop: asyncio.AbstractEventLoop, watched: list[Connection],
        before: dict[Connection, WriteDeadline],
    ) -> None:  # fmt: skip
        """Check some, and the others in the next turns of the loop."""
        now_s = loop.time()
        for _ in range(min(LOOKED_AT_ONCE, len(watched))):
            connection = watched.pop()
            if not connection.unsent_bytes:  # all taken: watched again from its next write
                continue
            mark = connection.taken_mark
            deadline = before.get(connection) or WriteDeadline(self._write_timeout_s, mark, now_s)
            if deadline.is_over(mark, now_s):
                logger.debug("a connection whose peer takes nothing was cut")
                connection.give_up()
            else:
                self._waiting[connection] = deadline
        if watched:
            loop.call_soon(self._look_on, loop, watched, before)
            return
        self._next_look = None
        if self._waiting or self._written or self._written_groups:
            self._arm(loop)


def without_chunks(app: Any, cycle: RequestResponseCycle) -> Any:
    """Return the ASGI application with answers for HTTP/1.0, which has no chunks (RFC 9112, 7.1).

    uvicorn writes each body of unknown length in chunks. Here such a body ends with the connection.
    """
    # It has no 100 either (RFC 9110, 15.2): its client would take that for the answer.
    cycle.waiting_for_100_continue = False

    async def unframed(scope: Scope, receive: Receive, send: Send) -> None:
        is_open_ended = False

        async def unframed_send(message: Message) -> None:
            nonlocal is_open_ended
            if message["type"] == "http.response.start":
                names = [name.lower() for name, _ in message.get("headers", ())]
                is_open_ended = b"content-length" not in names
                if is_open_ended:
                    cycle.chunked_encoding = False
            elif is_open_ended:
                # uvicorn counts a body that is not chunked down to nothing.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, unframed_send)

    return unframed
