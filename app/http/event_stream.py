"""The response that opens a stream: it hands the connection to a `SocketStream`, which writes it.

Under another server, a `StreamResponse` writes the stream.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final

from sse_starlette import EventSourceResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.app.embed.stream_response import HEADERS, StreamResponse
from tidegate.app.http.access_log import logged_when_over, not_logged
from tidegate.app.http.problems import stopping
from tidegate.app.http.protocol import GatewayProtocol, HandOver, protocol_of
from tidegate.app.http.scope import connection_of
from tidegate.app.http.wire import GATEWAY
from tidegate.app.streams.attach import attach_existing
from tidegate.app.streams.compression import (
    Coding,
    StreamEncoder,
    coding_of,
    negotiated_encoder,
)
from tidegate.app.streams.cursor import EventId
from tidegate.app.streams.event_writer import EventWriter
from tidegate.app.streams.notices import Heartbeat
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.session import Session
from tidegate.app.streams.socket_stream import SocketStream
from tidegate.app.streams.sse import jittered_retry_ms

logger = logging.getLogger("tidegate.stream")


GREETED_AT_ONCE: Final = 20  # subscribers; a stream with more begins in the next iteration

AGENT_BYTES_MAX: Final = 200  # of what a client calls itself


def _handed_over_headers(coding: Coding) -> list[tuple[bytes, bytes]]:
    """Return the header of a stream that takes its connection with it when it ends."""
    answer = EventSourceResponse(iter(()), ping=0, sep="\n", headers=HEADERS)
    if coding is not Coding.IDENTITY:
        answer.headers["Content-Encoding"] = coding
    answer.headers["Connection"] = "close"
    return answer.raw_headers


# Made once: the header is the same for every stream, and costs as much as a subscription.
HANDED_OVER_HEADERS: Final = {coding: _handed_over_headers(coding) for coding in Coding}


class EventStream(Response):
    """Hands the connection to a `SocketStream` where our own server runs it.

    Under another server, and over a connection that has to stay, a `StreamResponse` serves it.
    """

    def __init__(self, session: Session, reader: Reader, hello: bytes) -> None:
        self.reader = reader
        self._session = session
        self._times = session.context.times
        heartbeat = Heartbeat(self._times.heartbeat_s, asyncio.get_running_loop().time())
        self._writer = EventWriter(reader, hello, session, heartbeat)
        self._encoder: StreamEncoder | None = None
        # Of a response the framework asks for these two; that of its base would cost a stream more.
        self.background = None
        self.raw_headers = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream until its end, the peer's, or the write time-out."""
        self.negotiate(scope)
        if len(self.reader.styles) > GREETED_AT_ONCE:
            await self._yield()
        protocol = protocol_of(scope)
        if protocol is not None and protocol.can_hand_over(scope):
            await self._hand_over(protocol, scope, send)
        else:
            await self._serve(scope, receive, send)

    async def _yield(self) -> None:
        """Yield to the event loop: subscribing to hundreds of topics has blocked it for a while."""
        try:
            await asyncio.sleep(0)
        except BaseException:  # nobody else knows of the reader yet
            self.reader.close()
            raise

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream as a response, its task included."""
        writer, connection = self._writer, connection_of(scope)
        response = StreamResponse(lambda: writer, self._times, self._encoder, connection)
        response.raw_headers += self._gateway_field
        await response(scope, receive, send)

    async def _hand_over(self, protocol: GatewayProtocol, scope: Scope, send: Send) -> None:
        """Write the answer's header as any response does, then leave the connection to a stream."""
        headers, exchange = list(self.fields), protocol.running
        try:
            with exchange.holding() as held:
                await send({"type": "http.response.start", "status": 200, "headers": headers})
        except BaseException:
            self.reader.close()
            raise
        if exchange.is_cut:  # while the header waited for the peer to take an earlier answer
            self.reader.close()
            return
        self._begin(protocol.hand_over, b"".join(held), logged_when_over(scope))

    def negotiate(self, scope: Scope) -> None:
        """Choose the coding of the answer by what the request accepts, and note who asks."""
        self._encoder = negotiated_encoder(scope["headers"])
        self._session.address = (scope.get("client") or ("",))[0]
        self._session.agent = _agent_of(scope)

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]:
        """The header fields of the answer of a stream that takes its connection over."""
        return HANDED_OVER_HEADERS[coding_of(self._encoder)] + self._gateway_field

    @property
    def _gateway_field(self) -> list[tuple[bytes, bytes]]:
        """Return the field that names this gateway where there are several: sessions move."""
        session = self._session
        # Ids of sessions have a dot where there are several gateways, after the one that opened it.
        return [(GATEWAY, session.context.gateway_id.encode())] if "." in session.id else []

    def begin(self, hand_over: HandOver, head: bytes) -> None:
        """Take the connection of a request over, without a task; `head`: of the answer."""
        self._begin(hand_over, head, not_logged)

    def _begin(self, hand_over: HandOver, head: bytes, on_ended: Callable[[int], None]) -> None:
        stream = SocketStream(self._writer, self._times, self._encoder, on_ended)
        stream.begin(hand_over(stream), head)


def _agent_of(scope: Scope) -> str:
    """Return what a client calls itself; equal clients share the text."""
    found = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    return sys.intern(found[:AGENT_BYTES_MAX].decode("latin-1"))


async def session_stream(session: Session, seen: EventId | None, *, is_stopping: bool) -> Response:
    """Attach a reader that has seen this id of a kept session; return its stream.

    Raises:
        Refused: not-ready, as the gateway is about to stop.
        LimitReached: as many sessions as may be.
    """
    if session.has_ended:
        return Response(status_code=204)  # as its goodbye has said
    if is_stopping:
        raise stopping()
    attachment = attach_existing(session, seen, jittered_retry_ms())
    await attachment.in_turns()
    return EventStream(session, attachment.reader, attachment.hello)
