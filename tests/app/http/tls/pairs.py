"""A connection with TLS: a client of OpenSSL, the transport, and a protocol that records calls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from tidegate.app.http.transport.tls import Handshakes, TlsTransport
from tidegate.app.settings.settings import Settings

DEADLINE_S = 0.05
RECORD_BYTES = 16 << 10


class Plain(asyncio.Transport):
    """The transport below TLS: records what is written, and the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.calls: list[str] = []
        self.is_over = False
        self.limits: tuple[int | None, int | None] = (None, None)

    def write(self, data: Any) -> None:
        assert "write_eof" not in self.calls, "asyncio refuses it"
        self.sent += data

    def write_eof(self) -> None:
        self.calls.append("write_eof")

    def close(self) -> None:
        self.calls.append("close")
        self.is_over = True

    def abort(self) -> None:
        self.calls.append("abort")
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return 77


class Inner(asyncio.Protocol):
    """The protocol inside TLS; `stays_open`: it still writes after the end of the peer's data."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.received = bytearray()
        self.stays_open = False
        self.transport: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Pair:
    """A connection: `tls`, the transport of the gateway, and the client."""

    def __init__(self, handshakes: Handshakes, trusting: ssl.SSLContext) -> None:
        self.plain, self.inner = Plain(), Inner()
        self.tls = TlsTransport(handshakes, self._make)
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting.wrap_bio(self.into, self.out, server_hostname="localhost")
        self.made = 0
        self.tls.connection_made(self.plain)

    def _make(self) -> asyncio.Protocol:
        self.made += 1
        return self.inner

    def exchange(self) -> None:
        """Pass the bytes of both directions on, until there are none."""
        while True:
            self.into.write(bytes(self.plain.sent))
            self.plain.sent.clear()
            if not (raw := self.out.read()):
                return
            self.tls.data_received(raw)

    def complete_handshake(self) -> None:
        """Complete the handshake; raises the error of the client, or ConnectionError."""
        while True:
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                before = self.made
                self.exchange()
                if self.plain.is_over and not self.into.pending and before == self.made:
                    raise ConnectionError from None
            else:
                self.exchange()
                return

    def complete_and_read(self) -> None:
        """Complete the handshake and read; with TLS 1.3 only a read raises that it was refused."""
        self.complete_handshake()
        self.read()

    def send(self, text: bytes) -> None:
        self.client.write(text)
        self.exchange()

    def read(self) -> bytes:
        """Return what has arrived; `<end>` follows it once the gateway has ended its data."""
        self.exchange()
        found = b""
        while True:
            try:
                piece = self.client.read(1 << 20)
            except ssl.SSLWantReadError:
                return found
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                return found + b"<end>"
            found += piece


Settled = Callable[..., Settings]
Connect = Callable[..., Pair]
