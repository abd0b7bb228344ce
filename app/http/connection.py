"""The connection under a request: what a stream may know of its transport, below ASGI."""

import asyncio
import contextlib
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Scope

from tidegate.app.http.counters import Histogram
from tidegate.app.http.problems import TRANSPORT_EXTENSION

if sys.platform == "linux":
    import fcntl
    import termios

FIGURES_EXTENSION: Final = "tidegate.connections"

# In Linux's struct tcp_info: tcpi_bytes_acked, a count since the connection began, and
# tcpi_min_rtt in microseconds, all ones while unknown.
BYTES_ACKED: Final = slice(120, 128)
SHORTEST_ROUND_TRIP: Final = slice(148, 152)
TCP_INFO_BYTES: Final = 152
UNKNOWN_US: Final = (1 << 32) - 1

# Close with a reset: otherwise the kernel keeps offering the rest to a peer that takes nothing.
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class ConnectionFigures:
    """Figures of a server's connections and its event loop, for the metrics.

    Args:
        connections_max: served at once.
        connections: open now.
        refused_by: turned away since the start, by what there was no more room in: all
            `connections`, or those of one `address`.
        given_up: cut since the start because their peers took nothing for too long.
        loop_lag: how much later than asked for the loop calls.
    """

    connections_max: int
    connections: int = 0
    refused_by: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    loop_lag: Histogram = field(default_factory=Histogram)

    @property
    def refused(self) -> int:
        """Turned away since the start for want of room."""
        return self.refused_by.total()


class Connection:
    """The transport under a request, which ASGI has no words for.

    Args:
        transport: of the connection.
        on_abort: tells the requests of the connection that it is gone. The transport says so
            only in the loop's next turn, and a stream that returns in this one would be taken
            for one that forgot to end its answer.
        figures: counts those that are given up.
    """

    __slots__ = ("_figures", "_on_abort", "_socket", "_transport", "is_given_up")

    def __init__(
        self,
        transport: asyncio.Transport,
        on_abort: Callable[[], None],
        figures: ConnectionFigures,
    ) -> None:
        self.is_given_up = False
        self._transport = transport
        self._on_abort = on_abort
        self._figures = figures
        # It knows when it is closed; its bare number would be another connection's by then.
        self._socket: socket.socket | None = transport.get_extra_info("socket")

    def abort(self) -> None:
        """Close the socket with a reset, and free what the kernel holds for it."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self._transport.abort()
        self._on_abort()

    def was_handed_over(self) -> None:
        """Forget the requests of the connection, which a stream has now."""
        self._on_abort = _no_requests

    def give_up(self) -> None:
        """Abort and count a connection whose peer took nothing for too long."""
        if not self.is_given_up:
            self.is_given_up = True
            self._figures.given_up += 1
        self.abort()

    @property
    def is_closing(self) -> bool:
        """True once the connection is closed or about to be."""
        return self._transport.is_closing()

    @property
    def write_buffer_bytes(self) -> int:
        """Bytes in asyncio's buffer."""
        return self._transport.get_write_buffer_size()

    @property
    def unsent_bytes(self) -> int:
        """Bytes in asyncio's buffer and, on Linux, unacknowledged ones in the kernel's.

        Costs a system call, about a microsecond. A closed connection has none: the kernel would go
        on counting bytes that a peer which left can never acknowledge.
        """
        buffered_bytes = self._transport.get_write_buffer_size()
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
        if sys.platform != "linux" or self._number() < 0:
            return None
        assert self._socket is not None
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        return int.from_bytes(info[part], sys.byteorder) if len(info) >= part.stop else None

    def _unacknowledged_bytes(self) -> int:
        number = self._number()
        if sys.platform != "linux" or number < 0:
            return 0
        answer = fcntl.ioctl(number, termios.TIOCOUTQ, b"\0\0\0\0")  # SIOCOUTQ
        return int.from_bytes(answer, sys.byteorder)

    def _number(self) -> int:
        """Return the socket's descriptor; -1 once it is closed."""
        return -1 if self._socket is None else self._socket.fileno()


def _no_requests() -> None:
    """Tell nobody: there is no request that waits."""


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
