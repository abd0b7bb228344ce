"""The stream: one session's outputs as a response of server-sent events."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

import anyio
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tidegate.app.http.access_log import logged_when_over, not_logged
from tidegate.app.http.protocol import GatewayProtocol, HandOver, protocol_of
from tidegate.app.http.scope import connection_of
from tidegate.app.refusals import Refused
from tidegate.app.streams.attach import attach_existing
from tidegate.app.streams.compression import (
    Coding,
    StreamEncoder,
    coding_of,
    encoder_of,
    negotiate,
)
from tidegate.app.streams.connection import Connection
from tidegate.app.streams.event_writer import EventWriter
from tidegate.app.streams.notices import Heartbeat
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.session import Session
from tidegate.app.streams.socket_stream import SocketStream, look_interval_s, write_deadline
from tidegate.app.streams.sse import event, jittered_retry_ms
from tidegate.conflation.outputs import CloseReason

logger = logging.getLogger("tidegate.stream")


GREETED_AT_ONCE: Final = 20  # subscribers of a stream that begins in the turn of its request

AGENT_BYTES_MAX: Final = 200  # of what a client calls itself

HEADERS: Final = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}


def _raw_headers(coding: Coding, *, hands_over: bool) -> list[tuple[bytes, bytes]]:
    """Return the header of a stream's answer, as sse-starlette makes it."""
    answer = EventSourceResponse(iter(()), ping=0, sep="\n", headers=HEADERS)
    if coding is not Coding.IDENTITY:
        answer.headers["Content-Encoding"] = coding
    if hands_over:  # a stream takes its connection with it when it ends
        answer.headers["Connection"] = "close"
    return answer.raw_headers


# Made once: the header is the same for every stream, and costs as much as a subscription.
HANDED_OVER_HEADERS: Final = {coding: _raw_headers(coding, hands_over=True) for coding in Coding}


class EventStream(EventSourceResponse):
    """Hands the connection to a `SocketStream` where our own server runs it.

    Under another server it is sse-starlette's response, which brings disconnects and shutdown; its
    pings are off because ours come only when nothing else does.
    """

    def __init__(self, session: Session, reader: Reader, hello: bytes) -> None:
        self.reader = reader
        self._session = session
        self._consumer = reader.consumer
        self._driver, self._settings = session.context.driver, session.context.settings
        now_s = asyncio.get_running_loop().time()
        heartbeat = Heartbeat(self._settings.heartbeat.seconds, now_s)
        self._writer = EventWriter(reader, hello, session, heartbeat)
        self._connection: Connection | None = None
        self._encoder: StreamEncoder | None = None
        # Of a response the framework asks for these two; `_serve` completes it where it is one.
        self.background = None
        self.raw_headers = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream until its end, the peer's, or the write time-out."""
        self.negotiate(scope)
        if len(self.reader.styles) > GREETED_AT_ONCE:
            await self._take_turn()
        protocol = protocol_of(scope)
        if protocol is not None and protocol.can_hand_over(scope):
            await self._hand_over(protocol, scope, send)
        else:
            await self._serve(scope, receive, send)

    async def _take_turn(self) -> None:
        """Let others be served: to subscribe to hundreds of topics took as long as a turn may."""
        try:
            await asyncio.sleep(0)
        except BaseException:  # nobody else knows of the reader yet
            self.reader.close()
            raise

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream as a response, its task included."""
        super().__init__(self._events(), ping=0, sep="\n")
        self.raw_headers = _raw_headers(coding_of(self._encoder), hands_over=False)
        self._connection = self.reader.connection = connection_of(scope)
        try:
            await super().__call__(scope, receive, partial(self._send_in_time, send))
        except SendTimeoutError:
            if self._connection is None:
                self._consumer.give_up(CloseReason.WRITE_TIMEOUT)
            else:
                self._connection.give_up()
        finally:
            # The server's own watch may have cut the peer while no send waited here.
            if self._connection is not None and self._connection.is_given_up:
                self._consumer.give_up(CloseReason.WRITE_TIMEOUT)
            self.reader.close()

    async def _hand_over(self, protocol: GatewayProtocol, scope: Scope, send: Send) -> None:
        """Write the answer's header as any response does, then leave the connection to a stream."""
        headers = list(self.fields)
        try:
            with protocol.running.holding() as held:
                await send({"type": "http.response.start", "status": 200, "headers": headers})
        except BaseException:
            self.reader.close()
            raise
        self._begin(protocol.hand_over, b"".join(held), logged_when_over(scope))

    def negotiate(self, scope: Scope) -> None:
        """Choose the coding of the answer by what the request accepts, and note who asks."""
        self._encoder = _negotiated(scope)
        self._session.address = (scope.get("client") or ("",))[0]
        self._session.agent = _agent_of(scope)

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]:
        """The header fields of the answer of a stream that takes its connection over."""
        return HANDED_OVER_HEADERS[coding_of(self._encoder)]

    def begin(self, hand_over: HandOver, head: bytes) -> None:
        """Take the connection of a request over, without a task; `head`: of the answer."""
        self._begin(hand_over, head, not_logged)

    def _begin(self, hand_over: HandOver, head: bytes, on_ended: Callable[[int], None]) -> None:
        stream = SocketStream(self._writer, self._driver, self._settings, self._encoder, on_ended)
        stream.begin(hand_over(stream), head)

    async def _events(self) -> AsyncIterator[bytes]:
        writer, driver = self._writer, self._driver
        if self._encoder is not None:
            yield self._encoder.header
        yield self._encoded(writer.hello)
        while not writer.is_over:
            if self._connection is not None and self._connection.is_closing:
                return  # the peer has left, which the server says only in the next iteration
            text = writer.next(anyio.current_time())
            if not text:
                if not writer.is_over:
                    await self._consumer.wakeup.wait(writer.wait_s(anyio.current_time()))
                continue
            began = driver.now()
            yield self._encoded(text)  # which takes as long as the peer does
            driver.figures.wrote(len(text), driver.now() - began)
            for late in writer.wrote(len(text), anyio.current_time()):
                yield self._encoded(late)
        if self._encoder is not None:
            yield self._encoder.end()

    def _encoded(self, text: bytes) -> bytes:
        return text if self._encoder is None else self._encoder.block(text)

    async def _send_in_time(self, send: Send, message: Message) -> None:
        """Send a message, until the peer's deadline is over.

        A send that was cancelled can be repeated: uvicorn waits for room first, and writes then.
        """
        settings, writer = self._settings, self._writer
        deadline = write_deadline(settings, self._taken_mark(), anyio.current_time())
        look_s = look_interval_s(settings.write_timeout.seconds, settings.shutdown_grace.seconds)
        while True:
            with anyio.move_on_after(writer.look_in_s(look_s)) as wait:
                await send(message)
            if not wait.cancelled_caught:
                return
            writer.waited()
            self.reader.note_unsent()
            writer.look(self._connection, is_full=True)
            is_closed = self.reader.is_sent_away
            if deadline.is_over(self._taken_mark(), anyio.current_time(), is_closed=is_closed):
                raise SendTimeoutError

    def _taken_mark(self) -> int:
        return 0 if self._connection is None else self._connection.taken_mark


def _negotiated(scope: Scope) -> StreamEncoder | None:
    values = [value for name, value in scope["headers"] if name == b"accept-encoding"]
    return encoder_of(negotiate(b",".join(values).decode("latin-1")))


def _agent_of(scope: Scope) -> str:
    """Return what a client calls itself; equal clients share the text."""
    found = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    return sys.intern(found[:AGENT_BYTES_MAX].decode("latin-1"))


async def session_stream(session: Session, number: int | None, *, is_stopping: bool) -> Response:
    """Attach a reader that has seen this number of a kept session's cursor; return its stream.

    `is_stopping`: the gateway shuts down, and the stream only says so.

    Raises:
        LimitReached: as many sessions as may be.
    """
    if session.has_ended:
        return Response(status_code=204)  # as its goodbye has said
    if is_stopping:
        return stopping_stream()
    attachment = attach_existing(session, number, jittered_retry_ms())
    await attachment.in_turns()
    return EventStream(session, attachment.reader, attachment.hello)


def stopping_stream() -> EventSourceResponse:
    """Return the stream for a reader that comes while the gateway shuts down."""
    return refusal_stream(Refused("not-ready", "The gateway is shutting down."))


def refusal_stream(refused: Refused) -> EventSourceResponse:
    """Return a transient problem as a stream: a browser never retries after a 503."""

    async def refusal() -> AsyncIterator[bytes]:
        yield event("refused", refused.document(), retry_ms=jittered_retry_ms())

    return EventSourceResponse(refusal(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})
