"""TLS between a socket's transport and the protocol of a connection.

asyncio's own TLS reserves 256 KiB for each connection, keeps encrypted bytes in two buffers of
which one is not counted, and cannot close one direction alone. Here OpenSSL only turns bytes into
bytes: what waits, waits in the plain transport, so that back-pressure, deadlines and shutdown are
those of a connection without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidegate.app.access.certificate import ClientCertificate
from tidegate.app.http.transport.certificates import Certificates
from tidegate.app.http.wire import problem_bytes, without_body
from tidegate.app.refusals import Refused

logger = logging.getLogger("tidegate.tls")

HANDSHAKE_RECORD: Final = 0x16  # the first byte of every TLS connection
READ_BYTES: Final = 16 << 10  # the most of one record
NOT_TLS: Final = Refused("message-invalid", "This port speaks TLS: its address begins with https.")

# Connections in a handshake are not counted as connections yet, and need a bound of their own.
HANDSHAKES_MAX: Final = 512


class Handshakes:
    """The connections of one server that are in a handshake.

    Args:
        certificates: the gateway's certificates.
        deadline_s: how long a handshake may take.
        connections: what the server ends at a shutdown.
    """

    def __init__(
        self, certificates: Certificates, deadline_s: float, connections: set[Any]
    ) -> None:
        self.certificates = certificates
        self.deadline_s = deadline_s
        self._connections = connections
        self._running: dict[TlsTransport, None] = {}  # oldest first

    def begin(self, handshake: TlsTransport) -> None:
        """Count a handshake; cut the oldest of too many, as its peer is the most likely to idle."""
        self._connections.add(handshake)
        self._running[handshake] = None
        if len(self._running) > HANDSHAKES_MAX:
            next(iter(self._running)).abort()

    def end(self, handshake: TlsTransport) -> None:
        """Forget a handshake that is done or lost."""
        self._connections.discard(handshake)
        self._running.pop(handshake, None)


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """One connection: the protocol of its plain transport, and the transport of what is inside.

    The inner protocol is made when the handshake is done, so that a peer that is no client costs
    no parser and counts as no connection.

    Args:
        handshakes: the server's handshakes, with its certificates.
        make_protocol: makes the inner protocol.
    """

    __slots__ = (
        "_certificate",
        "_context",
        "_deadline",
        "_handshakes",
        "_has_begun",
        "_has_ended",
        "_has_sent_all",
        "_incoming",
        "_inner",
        "_is_reading",
        "_make_protocol",
        "_outgoing",
        "_plain",
        "_ssl",
        "_stays_open",
    )  # fmt: skip

    def __init__(
        self, handshakes: Handshakes, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        super().__init__()
        self._handshakes = handshakes
        self._make_protocol = make_protocol
        self._context = handshakes.certificates.context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._certificate: ClientCertificate | None = None
        self._inner: asyncio.Protocol | None = None
        self._plain: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._has_begun = False  # the first bytes are here
        self._is_reading = True
        self._has_sent_all = False
        self._has_ended = False  # the plain transport takes no more
        self._stays_open: bool | None = None  # None until the peer has ended

    # --- What the plain transport calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # asyncio's own is wider
        """Await the client's first bytes, within the deadline of a request's header."""
        self._plain = transport
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._handshakes.deadline_s, transport.abort)
        self._handshakes.begin(self)

    def data_received(self, received: bytes) -> None:
        """Go on with the handshake, or decrypt."""
        if not self._has_begun and received[0] != HANDSHAKE_RECORD:
            self._answer_plain_request(is_head=received.startswith(b"HEAD "))
            return
        self._has_begun = True
        self._incoming.write(received)
        if self._inner is None:
            self._shake_hands()
        if self._inner is not None:
            self._decrypt()

    def eof_received(self) -> bool:
        """Pass the peer's end on, if it has not said so inside TLS before."""
        if self._inner is None:
            return False
        if self._stays_open is None:
            self._stays_open = bool(self._inner.eof_received())
        return self._stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        """End the inner protocol, or the handshake."""
        self._end_handshake()
        if self._inner is not None:
            self._inner.connection_lost(exc)
            self._inner = None  # or the two would hold each other

    def pause_writing(self) -> None:
        """Let the inner protocol wait: the plain transport's buffer is full."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Let the inner protocol go on."""
        if self._inner is not None:
            self._inner.resume_writing()

    # --- What the server calls during a handshake

    @property
    def transport(self) -> asyncio.Transport | None:
        """The plain transport, for a server that cuts what is left at its end."""
        return self._plain

    def shutdown(self) -> None:
        """Leave: no request has come yet."""
        self.abort()

    # --- The handshake

    def _shake_hands(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except (ssl.SSLError, ssl.CertificateError) as error:
            # Anybody can cause it, so it is no line of the log that operators look at.
            logger.debug("a handshake failed: %s", error)
            self._send()  # the alert says why
            self._end_handshake()
            self._wire.close()
        else:
            self._send()
            self._end_handshake()
            shown = self._ssl.getpeercert()
            self._certificate = ClientCertificate.of(shown) if shown else None
            self._inner = self._make_protocol()
            self._inner.connection_made(self)

    def _end_handshake(self) -> None:
        self._handshakes.end(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _answer_plain_request(self, *, is_head: bool) -> None:
        """Answer plain HTTP in plain HTTP; any other client sees the connection end."""
        self._end_handshake()
        answer = problem_bytes(NOT_TLS)
        self._wire.write(without_body(answer) if is_head else answer)
        self._wire.close()

    # --- Bytes

    @property
    def _wire(self) -> asyncio.Transport:
        assert self._plain is not None, "the connection is made"
        return self._plain

    def _send(self) -> None:
        encrypted = self._outgoing.read()
        if encrypted and not self._has_ended:
            self._wire.write(encrypted)

    def _decrypt(self) -> None:
        """Pass on what has come, until the inner protocol wants no more for now."""
        while self._is_reading and self._stays_open is None and not self.is_closing():
            assert self._inner is not None
            try:
                received = self._ssl.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:  # both ends have said so
                received = b""
            except ssl.SSLError as error:
                logger.debug("a connection sent what is no TLS: %s", error)
                self._send()
                self._wire.abort()
                return
            if received:
                self._inner.data_received(received)
                continue
            self._stays_open = bool(self._inner.eof_received())
            if not self._stays_open:
                self.close()
        self._send()  # an answer of TLS itself, such as to a change of keys

    def _end_sending(self) -> None:
        """Say inside TLS that nothing more comes; without it the peer must fear a cut."""
        self._has_sent_all = True
        with contextlib.suppress(ssl.SSLError):  # it waits for the peer's own, which we do not
            self._ssl.unwrap()
        self._send()

    # --- What the inner protocol calls

    def write(self, content: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; what the socket does not take waits in the plain transport."""
        if self._has_sent_all or self.is_closing():
            return
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._ssl.write(rest) :]
        except ssl.SSLError as error:
            logger.debug("a connection cannot be written to: %s", error)
            self._wire.abort()
            return
        self._send()

    def write_eof(self) -> None:
        """Close this direction; the peer may go on sending."""
        if not self._has_sent_all and not self.is_closing():
            self._end_sending()
            self._has_ended = True
            self._wire.write_eof()

    def can_write_eof(self) -> bool:
        """Return True: TLS can close one direction."""
        return True

    def close(self) -> None:
        """Close when all is sent."""
        if self._inner is not None and not self._has_sent_all and not self.is_closing():
            self._end_sending()
        self._wire.close()

    def abort(self) -> None:
        """Close at once."""
        self._wire.abort()

    def is_closing(self) -> bool:
        """Return True once the connection is closed or about to be."""
        return self._wire.is_closing()

    def is_reading(self) -> bool:
        """Return True while the inner protocol takes what comes."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Pass nothing on until `resume_reading`."""
        if self._is_reading and not self.is_closing():
            self._is_reading = False
            self._wire.pause_reading()

    def resume_reading(self) -> None:
        """Pass on what has come meanwhile, in the next iteration as a plain transport does."""
        if not self._is_reading and not self.is_closing():
            self._is_reading = True
            self._wire.resume_reading()
            asyncio.get_running_loop().call_soon(self._decrypt)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the inner protocol is paused and resumed."""
        self._wire.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit of the bytes that the socket has not taken."""
        return self._wire.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the socket has not taken, as encrypted."""
        return self._wire.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the inner protocol."""
        assert isinstance(protocol, asyncio.Protocol)
        self._inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the inner protocol."""
        assert self._inner is not None
        return self._inner

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection; `tidegate.certificate` is the client's."""
        match name:
            case "sslcontext":
                return self._context
            case "ssl_object":
                return self._ssl
            case "tidegate.certificate":
                return self._certificate
        return self._wire.get_extra_info(name, default)


def tls_factory(
    certificates: Certificates,
    make_protocol: Callable[..., asyncio.Protocol],
    deadline_s: float,
) -> Callable[..., TlsTransport]:
    """Return uvicorn's factory of protocols, each within TLS; `deadline_s`: of a handshake."""
    handshakes: Handshakes | None = None

    def make(**given: Any) -> TlsTransport:
        nonlocal handshakes
        if handshakes is None:  # uvicorn has one state for all connections of a server
            handshakes = Handshakes(certificates, deadline_s, given["server_state"].connections)
        return TlsTransport(handshakes, partial(make_protocol, **given))

    return make
