"""What a stream may know of its connection and do to it, below ASGI."""

import asyncio
import sys
from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

from app.problems import TRANSPORT_EXTENSION

if sys.platform == "linux":
    import fcntl
    import termios


class Connection(Protocol):
    """The transport under a request. ASGI has no words for these."""

    def abort(self) -> None:
        """Close the socket at once; what is not sent yet is lost. The app sees a disconnect."""

    @property
    def is_closing(self) -> bool:
        """True once the connection is closed or about to be."""

    @property
    def write_buffer_bytes(self) -> int:
        """Bytes accepted for sending that the kernel has not taken yet."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes the peer has not acknowledged yet, whether in our buffer or in the kernel's."""


class TransportConnection:
    """A `Connection` over an asyncio transport.

    Args:
        transport: of the connection.
        on_abort: tells the requests of the connection that it is gone. The transport says so
            only in the loop's next turn, and a stream that returns in this one would be taken
            for one that forgot to end its answer.
    """

    __slots__ = ("_on_abort", "_transport")

    def __init__(self, transport: asyncio.Transport, on_abort: Callable[[], None]) -> None:
        self._transport = transport
        self._on_abort = on_abort

    def abort(self) -> None:
        """Close the socket at once."""
        self._transport.abort()
        self._on_abort()

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
        """Bytes in asyncio's buffer and, on Linux, unacknowledged ones in the kernel's."""
        return self.write_buffer_bytes + self._unacknowledged_bytes()

    def _unacknowledged_bytes(self) -> int:
        socket = self._transport.get_extra_info("socket")
        if sys.platform != "linux" or socket is None or socket.fileno() < 0:
            return 0
        answer = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")  # SIOCOUTQ
        return int.from_bytes(answer, sys.byteorder)


def connection_of(scope: Scope) -> Connection | None:
    """The connection under a request, or None under a server that is not ours."""
    connection: Connection | None = scope.get("extensions", {}).get(TRANSPORT_EXTENSION)
    return connection
