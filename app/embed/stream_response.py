"""A stream as the response of an ASGI application under any server, based on sse-starlette."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tidegate.app.refusals import Refused, refused
from tidegate.app.streams.compression import StreamEncoder
from tidegate.app.streams.connection import StreamConnection, StreamTimes, WriteDeadline
from tidegate.app.streams.event_writer import EventWriter
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.scheduler import INFINITY
from tidegate.app.streams.sse import event, jittered_retry_ms
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.outputs import CloseReason
from tidegate.keys.errors import Refusal

HEADERS: Final = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
PROBLEM: Final = "application/problem+json"
NOTHING: Final[Sequence[bytes]] = ()


def refusal_stream(refusal: Refused) -> EventSourceResponse:
    """Return a transient problem as a stream: a browser never retries after a 503."""

    async def events() -> AsyncIterator[bytes]:
        yield event("refused", refusal.document(), retry_ms=jittered_retry_ms())

    return EventSourceResponse(events(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})


def refusal_response(refusal: Refusal) -> Response:
    """Return the answer to a request that is refused: a problem (RFC 9457), or a stream of it."""
    problem = refused(refusal)
    if isinstance(refusal, LimitReached):
        return refusal_stream(problem)
    return Response(msgspec.json.encode(problem.document()), problem.status, media_type=PROBLEM)


async def _nothing() -> AsyncIterator[bytes]:
    """Yield nothing: the stream is not open yet."""
    for text in NOTHING:
        yield text


class AsgiConnection:
    """The connection under a response, known only by when its server accepts what is sent."""

    __slots__ = ("is_given_up", "taken_mark", "unsent_bytes")

    has_kept = False
    is_closing = False
    round_trip_ns = 0

    def __init__(self) -> None:
        self.is_given_up = False
        self.taken_mark = 0
        self.unsent_bytes = 0

    @property
    def write_buffer_bytes(self) -> int:
        """Bytes of the send that waits."""
        return self.unsent_bytes

    def begin_send(self, size_bytes: int) -> None:
        """Record that bytes are handed to the server."""
        self.unsent_bytes = size_bytes

    def end_send(self) -> None:
        """Record that the server has taken them."""
        self.unsent_bytes = 0
        self.taken_mark += 1

    def give_up(self) -> None:
        """Record that the peer is cut; the server has to drop what it has buffered."""
        self.is_given_up = True


class StreamResponse(EventSourceResponse):
    """One stream as a response.

    sse-starlette handles disconnects and shutdown. Its pings are off: the stream sends heartbeats
    only if it is idle. At a shutdown the stream sends a goodbye, which says when to reconnect.

    Args:
        open_writer: opens the stream when the response is served, as a middleware may discard the
            response. A refusal that it raises becomes the answer.
        times: how long the peer may take nothing.
        encoder: compresses the answer; None: the answer is not compressed.
        connection: the connection below the server, if it is known.
    """

    def __init__(
        self,
        open_writer: Callable[[], EventWriter],
        times: StreamTimes,
        encoder: StreamEncoder | None,
        connection: StreamConnection | None = None,
    ) -> None:
        self._stopping = anyio.Event()
        super().__init__(
            _nothing(),
            ping=0,
            sep="\n",
            headers=HEADERS,
            shutdown_event=self._stopping,
            shutdown_grace_period=times.farewell_s,
        )
        if encoder is not None:
            self.headers["Content-Encoding"] = encoder.coding
        self._open_writer = open_writer
        self._times = times
        self._encoder = encoder
        self._connection = AsgiConnection() if connection is None else connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream until it ends, the peer leaves, or the write timeout."""
        if scope.get("method") == "HEAD":  # the answer's header, without opening a stream
            await super().__call__(scope, receive, send)
            return
        try:
            writer = self._open_writer()
        except Refusal as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        reader, connection = writer.reader, self._connection
        reader.connection = connection
        self.body_iterator = self._events(writer)
        self.data_sender_callable = partial(self._say_goodbye, reader)
        try:
            await super().__call__(scope, receive, partial(self._send_in_time, writer, send))
        except SendTimeoutError:
            connection.give_up()
        finally:
            # `WriteWatch` may have cut the peer while no send waited here.
            if connection.is_given_up:
                reader.consumer.give_up(CloseReason.WRITE_TIMEOUT)
            reader.close()

    async def _say_goodbye(self, reader: Reader) -> None:
        await self._stopping.wait()
        reader.consumer.give_up(CloseReason.SHUTDOWN)

    async def _events(self, writer: EventWriter) -> AsyncIterator[bytes]:
        driver, turn = writer.reader.driver, _Turn(writer)
        if self._encoder is not None:
            yield self._encoder.header
        yield self._encoded(writer.hello)
        while not writer.is_over:
            if self._connection.is_closing:
                return  # the peer has left, which the server says only in the next iteration
            text = writer.next(anyio.current_time()) or await turn.next()
            if not text:
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

    async def _send_in_time(self, writer: EventWriter, send: Send, message: Message) -> None:
        """Send a message within the peer's deadline.

        A cancelled send ends the stream: the server may have written a part of it, so nothing may
        be sent again.

        Raises:
            SendTimeoutError: the deadline is missed.
        """
        connection = self._connection
        if isinstance(connection, AsgiConnection):
            connection.begin_send(len(message.get("body", b"")))
        with anyio.CancelScope() as scope:
            waiting = _Waiting(writer, connection, self._times, scope)
            try:
                await send(message)
            finally:
                waiting.end()
        if scope.cancelled_caught:
            raise SendTimeoutError
        if isinstance(connection, AsgiConnection):
            connection.end_send()


class _Turn:
    """Waits for the next text of a stream, which the scheduler of streams fetches.

    A flush wakes thousands of streams, whose tasks would all run in one iteration of the event
    loop. So each task is woken only with its text, a bounded number of them in an iteration.
    """

    __slots__ = ("_due_s", "_loop", "_streams", "_taken", "_writer")

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._streams = writer.reader.driver.streams
        self._loop = asyncio.get_running_loop()
        self._due_s = INFINITY
        self._taken: asyncio.Future[bytes] | None = None
        writer.reader.consumer.on_woken = self._woken

    async def next(self) -> bytes:
        """Wait for the next text; empty: the stream is over. Only after there was none."""
        if self._writer.is_over:
            return b""
        self._taken = self._loop.create_future()
        self._call_in_time()
        try:
            return await self._taken
        finally:
            self._taken = None

    def _woken(self) -> None:
        if self._taken is not None:  # else the stream writes, and asks for more after that
            self._streams.call_soon(self._take)

    def _take(self) -> None:
        now_s = self._loop.time()
        if self._due_s <= now_s:
            self._due_s = INFINITY
        if self._taken is None or self._taken.done():
            return
        try:
            text = self._writer.next(now_s)
        except Exception as error:
            self._taken.set_exception(error)
            return
        if text or self._writer.is_over:
            self._taken.set_result(text)
        else:
            self._call_in_time()

    def _call_in_time(self) -> None:
        """Schedule a call for the next heartbeat, unless an earlier one is scheduled."""
        now_s = self._loop.time()
        due_s = now_s + self._writer.wait_s(now_s)
        if due_s < self._due_s:
            self._due_s = due_s
            self._streams.call_at(due_s, self._take)


class _Waiting:
    """Checks the deadline of a send that waits for its peer, and cancels a send that missed it."""

    __slots__ = ("_connection", "_deadline", "_scope", "_timer", "_times", "_writer")

    def __init__(
        self,
        writer: EventWriter,
        connection: StreamConnection,
        times: StreamTimes,
        scope: anyio.CancelScope,
    ) -> None:
        self._writer = writer
        self._connection = connection
        self._times = times
        self._scope = scope
        self._deadline: WriteDeadline = times.deadline(connection.taken_mark, self._now_s())
        self._timer = self._check_later()

    def end(self) -> None:
        """Stop checking: the send is done."""
        self._timer.cancel()

    def _check(self) -> None:
        writer, reader = self._writer, self._writer.reader
        writer.waited()
        reader.note_unsent()
        writer.observe(self._connection, is_full=True)
        mark = self._connection.taken_mark
        if self._deadline.is_over(mark, self._now_s(), is_closed=reader.is_closed_early):
            self._scope.cancel()
        else:
            self._timer = self._check_later()

    def _check_later(self) -> asyncio.TimerHandle:
        check_s = self._writer.observe_in_s(self._times.check_s)
        return asyncio.get_running_loop().call_later(check_s, self._check)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
