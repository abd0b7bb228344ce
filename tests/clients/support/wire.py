"""A TCP line to a gateway that a test can cut, join and look at."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from urllib.parse import urlsplit

from tests.support.deadlines import HANGS_S


class Wire:
    """A line to a gateway, with an address of its own.

    Attributes:
        asked: what clients sent, of all connections.
        answered: what the gateway sent.
        loses_streams: true to lose what the gateway sends on streams.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self.server = parts.hostname, parts.port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.asked = bytearray()
        self.answered = bytearray()
        self.ends: list[socket.socket] = []
        self.is_cut = self.loses_streams = False
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = None if self.is_cut else self.reach()
                if far is None:
                    near.close()
                    continue
                self.ends += [near, far]
                asked = bytearray()
                lost = partial(self.is_lost, asked)
                for way in (
                    (near, far, (self.asked, asked), bool),
                    (far, near, (self.answered,), lost),
                ):
                    threading.Thread(target=carry, args=way, daemon=True).start()

    def reach(self) -> socket.socket | None:
        """Connect to the gateway; None while there is none."""
        with contextlib.suppress(OSError):
            return socket.create_connection(self.server)
        return None

    def is_lost(self, asked: bytearray) -> bool:
        """Whether what comes now on the connection that has asked for this is lost."""
        return self.loses_streams and b"/events" in asked

    def cut(self) -> None:
        """End what is open, and refuse what comes."""
        self.is_cut = True
        for end in self.ends:
            _shut(end)

    def join(self) -> None:
        """Carry new connections again, with all that comes."""
        self.is_cut = self.loses_streams = False

    def close(self) -> None:
        self.cut()
        _shut(self.listener)
        self.listener.close()
        self.thread.join(HANGS_S)
        for end in self.ends:
            end.close()


@contextlib.contextmanager
def wire_to(address: str) -> Iterator[Wire]:
    """A line to a gateway, closed at the end."""
    wire = Wire(address)
    try:
        yield wire
    finally:
        wire.close()


def carry(
    one: socket.socket,
    other: socket.socket,
    seen: Iterable[bytearray],
    is_lost: Callable[[], bool],
) -> None:
    """Carry what comes from one end to the other until it ends."""
    with contextlib.suppress(OSError):
        while piece := one.recv(65536):
            for each in seen:
                each += piece
            if not is_lost():
                other.sendall(piece)
    _shut(other)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
