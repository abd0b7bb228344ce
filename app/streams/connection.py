"""The connection under a stream: its transport, and the deadline by which a peer must take bytes.

A slow reader is cut here if it takes no byte for `write_timeout`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import struct
import sys
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from tidegate.app.figures import ConnectionFigures
from tidegate.app.streams.scheduler import StreamScheduler

if sys.platform == "linux":
    import fcntl
    import termios

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


class StreamConnection(Protocol):
    """What a stream asks of the connection under it."""

    @property
    def is_closing(self) -> bool:
        """True once the connection is closed or about to be."""

    @property
    def is_given_up(self) -> bool:
        """True once the stream has cut its peer."""

    @property
    def has_kept(self) -> bool:
        """True if bytes of a stream are kept that the transport has no room for."""

    @property
    def write_buffer_bytes(self) -> int:
        """Bytes that the socket has not taken."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not taken, as far as is known."""

    @property
    def taken_mark(self) -> int:
        """A number that changes whenever the peer has taken something."""

    @property
    def round_trip_ns(self) -> int:
        """The shortest round trip of the last minutes; 0 where it is not known."""

    def give_up(self) -> None:
        """End the connection of a peer that took nothing for too long, as far as can be."""


class Connection:
    """The transport under a request, which ASGI has no words for.

    Args:
        transport: the connection's transport.
        on_abort: ends the requests of the connection. The transport reports the loss
            only in the next iteration; for a stream that returns before that, the server would
            log an incomplete response.
        figures: counts the connections that are given up.
    """

    __slots__ = (
        "_direct", "_figures", "_kept", "_kept_bytes", "_on_abort", "_socket", "_transport",
        "is_given_up",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        on_abort: Callable[[], None],
        figures: ConnectionFigures,
    ) -> None:
        self.is_given_up = False
        # Bytes that the transport has no room for: views of texts that streams share.
        self._kept: list[memoryview] = []  # a deque would cost each idle connection 0.6 KiB
        self._kept_bytes = 0
        self._transport = transport
        self._on_abort = on_abort
        self._figures = figures
        # Not its descriptor: the number is used again after the close.
        self._socket: TransportSocket | None = transport.get_extra_info("socket")
        self._direct: socket.socket | None = None

    def write(self, framed: bytes | memoryview) -> None:
        """Hand bytes of a stream to the transport, as many as it has room for; keep the others.

        The protocol calls `write_kept` when the transport has room again (`resume_writing`).
        """
        if len(framed) <= PIECE_BYTES and not self._kept:
            self._transport.write(framed)
            return
        self._kept.append(memoryview(framed))
        self._kept_bytes += len(framed)
        self.write_kept()

    @property
    def has_kept(self) -> bool:
        """True if bytes of a stream are kept that the transport has no room for."""
        return bool(self._kept)

    @property
    def is_full(self) -> bool:
        """True while the transport has paused its stream."""
        transport = self._transport
        return transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]

    def write_kept(self) -> None:
        """Hand kept bytes to the transport while it has room."""
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
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self._forget_kept()
        self._transport.abort()
        self._on_abort()

    def release_requests(self) -> None:
        """Forget the requests of the connection: a stream has taken it over."""
        self._on_abort = _no_requests

    def direct_socket(self) -> socket.socket | None:
        """Return a socket that bypasses the transport; None if there is none, or it is lost.

        It shares the transport's descriptor until `release`: asyncio's own view of the socket
        cannot write.
        """
        if self._direct is None and self._socket is not None and self._socket.fileno() >= 0:
            at = self._socket
            self._direct = socket.socket(at.family, at.type, at.proto, fileno=at.fileno())
            self._direct.setblocking(False)
        return self._direct

    def release(self) -> None:
        """Free the kept bytes of a lost connection; the transport closes the socket itself."""
        self._forget_kept()
        if self._direct is not None:
            self._direct.detach()

    def give_up(self) -> None:
        """Abort and count a connection whose peer took nothing for too long."""
        if not self.is_given_up:
            self.is_given_up = True
            self._figures.given_up += 1
        self.abort()

    def info(self, name: str) -> Any:
        """Return the transport's extra information of this name, or None."""
        return self._transport.get_extra_info(name)

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

        This is a system call of about a microsecond. A closed connection has no unsent bytes: the
        kernel would still count bytes that a peer that left can never acknowledge.
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
        assert self._socket is not None
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
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
        return NO_DESCRIPTOR if self._socket is None else self._socket.fileno()


def _no_requests() -> None:
    """Do nothing: no request waits."""


CHECKS_PER_TIMEOUT: Final = 10  # a peer is cut at most two checks after its deadline
CHECKS_PER_FAREWELL: Final = 2
CHECK_S_MIN: Final = 0.02
CHECKED_AT_ONCE: Final = 100  # connections in one iteration, a few us each

logger = logging.getLogger("tidegate.connections")


class WriteDeadline:
    """Decides when a peer is cut: each byte that it takes starts the time again.

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


class StreamTimes(NamedTuple):
    """How long a stream may be silent, and how long it waits for its peer; in seconds.

    Args:
        heartbeat_s: the longest silence.
        write_s: without a byte taken.
        farewell_s: for what is under way and the goodbye, once its session has been closed.
    """

    heartbeat_s: float
    write_s: float
    farewell_s: float

    def deadline(self, taken_mark: int, now_s: float) -> WriteDeadline:
        """Begin the deadline of a stream that waits to write."""
        return WriteDeadline(self.write_s, taken_mark, now_s, farewell_s=self.farewell_s)

    @property
    def check_s(self) -> float:
        """How often a stream that waits to write checks its deadline."""
        check_s = min(self.write_s / CHECKS_PER_TIMEOUT, self.farewell_s / CHECKS_PER_FAREWELL)
        return max(CHECK_S_MIN, check_s)


class WriteWatch:
    """Cuts the connections of one server that have missed their deadline.

    A stream that waits to write checks its own deadline. The watch covers writes that no task waits
    for: an answer handed to the socket whole, the rest of a connection that is being closed, the
    last rows of an idle stream. A connection without unsent bytes is not checked.

    Args:
        write_timeout_s: seconds in which a peer has to take a byte.
        scheduler: calls the checks, behind the streams that are ready.
    """

    def __init__(self, write_timeout_s: float, scheduler: StreamScheduler) -> None:
        self._write_timeout_s = write_timeout_s
        self._scheduler = scheduler
        self._is_armed = False
        # Dicts in place of sets, for their order.
        self._written: dict[Connection, None] = {}
        self._written_groups: dict[Callable[[], Iterable[Connection]], None] = {}
        # Connections with unsent bytes, longest first.
        self._waiting: dict[Connection, WriteDeadline] = {}
        # Of the check under way: connections that are still to be checked, and earlier deadlines.
        self._unchecked: deque[Connection] = deque()
        self._before: dict[Connection, WriteDeadline] = {}

    def note_write(self, connection: Connection) -> None:
        """Check a connection at the next check, as bytes were written."""
        self._written[connection] = None
        if not self._is_armed:
            self._arm()

    def note_group(self, connections: Callable[[], Iterable[Connection]]) -> None:
        """Check the connections that the function returns, as bytes were written to all."""
        self._written_groups[connections] = None
        if not self._is_armed:
            self._arm()

    def _arm(self) -> None:
        self._is_armed = True
        due_s = asyncio.get_running_loop().time() + self._write_timeout_s / CHECKS_PER_TIMEOUT
        self._scheduler.call_at(due_s, self._check, behind=True)

    def forget(self, connection: Connection) -> None:
        """Forget a lost connection, and free what it keeps."""
        self._written.pop(connection, None)
        self._waiting.pop(connection, None)
        connection.release()

    def _check(self) -> None:
        """Check some connections, and the others in the next iterations."""
        if not self._unchecked:
            in_groups = chain.from_iterable(connections() for connections in self._written_groups)
            each_once = dict.fromkeys(chain(self._waiting, self._written, in_groups))
            self._unchecked = deque(each_once)
            self._written.clear()
            self._written_groups.clear()
            self._before, self._waiting = self._waiting, {}
        now_s = asyncio.get_running_loop().time()
        for _ in range(min(CHECKED_AT_ONCE, len(self._unchecked))):
            connection = self._unchecked.popleft()
            if not connection.unsent_bytes:  # checked again after its next write
                continue
            mark = connection.taken_mark
            deadline = self._before.get(connection)
            if deadline is None:
                deadline = WriteDeadline(self._write_timeout_s, mark, now_s)
            if deadline.is_over(mark, now_s):
                logger.debug("a connection whose peer takes nothing was cut")
                connection.give_up()
                # Its session ends in the next iteration, which takes half a millisecond.
                self._scheduler.call_at(now_s, self._check, behind=True)
                return
            self._waiting[connection] = deadline
        if self._unchecked:
            self._scheduler.call_soon(self._check, behind=True)
            return
        self._before = {}
        self._is_armed = False
        if self._waiting or self._written or self._written_groups:
            self._arm()


class HandedOver(NamedTuple):
    """A connection that a stream has taken over.

    Args:
        transport: what to write to; its buffer is full if `is_paused`.
        connection: the connection below the transport.
        write_watch: is called after each write.
        on_lost: called when the connection is lost, to uncount it.
        served: the protocols that the server calls at a shutdown, and waits for.
    """

    transport: asyncio.Transport
    connection: Connection
    write_watch: WriteWatch
    on_lost: Callable[[Connection], None]
    served: set[Any]
    is_paused: bool

    @property
    def plain_socket(self) -> socket.socket | None:
        """The socket, to be written to while the transport buffers nothing; None under TLS."""
        is_plain = self.transport.get_extra_info("sslcontext") is None
        return self.connection.direct_socket() if is_plain else None

    def write(self, framed: bytes | memoryview) -> None:
        """Write bytes, and let the watch check that they are taken."""
        self.connection.write(framed)
        self.write_watch.note_write(self.connection)

    def leave(self, stream: asyncio.Protocol) -> None:
        """Forget the connection: it is lost."""
        self.on_lost(self.connection)
        self.write_watch.forget(self.connection)
        self.served.discard(stream)
