"""The listener of a gateway that lives in the test's own process: Unix sockets in place of TCP.

What is written at one end can be read at the other at once, so a loop on a jumping clock knows when
nothing is under way. The gateway sees addresses as of TCP clients.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tidegate.app.http.transport.listener import Acceptor

_numbers = itertools.count(1)
_listening: dict[str, str] = {}
"""The Unix socket's name of each host and port that is served in this process."""


class MemorySocket(socket.socket):
    """An accepted connection, with addresses as of TCP; the kernel has no figures of TCP for it."""

    def __init__(
        self, accepted: socket.socket, client: tuple[str, int], server: tuple[str, int]
    ) -> None:
        super().__init__(accepted.family, accepted.type, fileno=accepted.detach())
        self._client = client
        self._server = server

    def getpeername(self) -> tuple[str, int]:
        """The client's address."""
        return self._client

    def getsockname(self) -> tuple[str, int]:
        """The address that the client connected to."""
        return self._server

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        """As every socket's, and nothing of TCP."""
        if level == socket.IPPROTO_TCP:
            return b"" if size else 0
        return (
            super().getsockopt(level, option, size) if size else super().getsockopt(level, option)
        )

    def setsockopt(self, level: int, option: int, *value: Any) -> None:
        """As every socket's; options of TCP are passed over."""
        if level != socket.IPPROTO_TCP:
            super().setsockopt(level, option, *value)


class MemoryListener(Acceptor):
    """Listens in this process alone, with or without TLS; its clients are given host and port."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__(socket.AF_UNIX)
        number = next(_numbers)
        self.host, self.port = host, 1 + number % 65_535
        self._place = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._name = f"\0tidegate-test-{os.getpid()}-{number}"
        self._clients = itertools.count(40_000)
        self.bind(self._name)
        self.listen(1_000)
        self.setblocking(False)
        _listening[self._place] = self._name

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, with an address of its client's."""
        accepted, _ = super().accept()
        client = ("127.0.0.1", next(self._clients) % 65_536)
        return MemorySocket(accepted, client, self.getsockname()), client

    def getsockname(self) -> tuple[str, int]:
        """As of TCP."""
        return self.host, self.port

    def close(self) -> None:
        """Listen no more."""
        _listening.pop(self._place, None)
        super().close()


def unix_name(address: str) -> str | None:
    """The Unix socket behind an address; None if it is one of TCP."""
    return _listening.get(urlsplit(address).netloc)


def transport_to(
    address: str, limits: httpx2.Limits, tls: ssl.SSLContext | None = None
) -> httpx2.AsyncHTTPTransport | None:
    """What an HTTP client needs to reach an address of this process; None if it is one of TCP."""
    name = unix_name(address)
    return (
        None
        if name is None
        else httpx2.AsyncHTTPTransport(uds=name, limits=limits, verify=tls or False)
    )


async def open_connection(
    address: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to an address, of this process or of TCP."""
    url, name = urlsplit(address), unix_name(address)
    if name is None:
        return await asyncio.open_connection(url.hostname, url.port, ssl=tls)
    return await asyncio.open_unix_connection(
        name, ssl=tls, server_hostname=None if tls is None else url.hostname
    )
