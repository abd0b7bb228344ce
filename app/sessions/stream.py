"""The stream: one session's outputs as a response of server-sent events."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

import anyio
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tidegate.app.delivery.notices import Heartbeat, Progress, late_events
from tidegate.app.http.connection import Connection, WriteDeadline, connection_of
from tidegate.app.http.problems import Problem
from tidegate.app.http.wire import HEARTBEAT, event, jittered_retry_ms
from tidegate.app.sessions.attach import attach_existing
from tidegate.app.sessions.auto_watch import AutoWatch
from tidegate.app.sessions.reader import Reader
from tidegate.app.sessions.session import Session
from tidegate.conflation.outputs import CloseReason, Goodbye, Output

LOOKS_PER_TIMEOUT: Final = 10
LOOKS_PER_FAREWELL: Final = 2
LOOK_S_MIN: Final = 0.02

# A socket that has taken everything gets a whole flush at once, the bytes that its lane shares.
# One with a backlog gets little at a time, so that newer values conflate those not sent yet.
TAKE_BYTES_MAX = 1 << 20
TAKE_BYTES_BEHIND = 16 << 10

logger = logging.getLogger("tidegate.stream")


class EventStream(EventSourceResponse):
    """Sends what its consumer takes; closes a peer that takes nothing for `write_timeout`.

    sse-starlette brings the response, disconnects and shutdown; its pings are off because ours
    come only when nothing else does.
    """

    def __init__(self, session: Session, reader: Reader, hello: bytes) -> None:
        self.reader = reader
        self._consumer = reader.consumer
        self._hello = hello
        self._driver, self._settings = session.context.driver, session.context.settings
        self._auto = AutoWatch(self._driver, reader, session.asked)
        self._progress = Progress(reader.styles, reader.ids)
        self._connection: Connection | None = None
        super().__init__(self._events(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream until its end, the peer's, or the write time-out."""
        self._connection = self.reader.connection = connection_of(scope)
        try:
            await super().__call__(scope, receive, send)
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

    async def _events(self) -> AsyncIterator[bytes]:
        yield self._hello
        auto, driver = self._auto, self._driver
        pulse = Heartbeat(self._settings.heartbeat.seconds, anyio.current_time())
        is_behind = False
        while True:
            self.reader.note_unsent()
            self.reader.confirm()
            has_unsent = self._has_unsent()
            outputs = self._consumer.take(TAKE_BYTES_BEHIND if has_unsent else TAKE_BYTES_MAX)
            auto.look(self._connection, outputs)
            text = self._consumer.notices() + self._encoded(outputs) or self._quiet(pulse)
            if not text and self._consumer.is_over:
                return
            if not text:
                is_behind = False
                wait_s = pulse.wait_s(anyio.current_time(), progress=self._progress.is_asked_for)
                await self._consumer.wait(auto.wait_s(wait_s))
                continue
            began = driver.now()
            yield text  # which takes as long as the peer does
            driver.figures.write.note_ns(driver.now() - began)
            driver.figures.write_bytes.note(len(text))
            auto.wrote(len(text))
            if outputs and isinstance(outputs[-1], Goodbye):
                return
            # Late rows are known only now: a slow write is part of their age.
            write_context = self._consumer.write_context(has_unsent=has_unsent, is_behind=is_behind)
            for late in late_events(outputs, self.reader.styles, write_context):
                yield late
            pulse.wrote(anyio.current_time())
            is_behind = bool(outputs)

    def _encoded(self, outputs: Sequence[Output]) -> bytes:
        self._progress.wrote(outputs)
        return self.reader.encoded(outputs, jittered_retry_ms())

    def _quiet(self, pulse: Heartbeat) -> bytes:
        """Return progress or a heartbeat if one is due."""
        now = anyio.current_time()
        if self._progress.is_asked_for and pulse.progress_due(now):
            pulse.looked(now)
            progress = self._progress.events(self._consumer.caught_up())
            if progress:
                return progress
        return HEARTBEAT if pulse.heartbeat_due(now) else b""

    def _has_unsent(self) -> bool:
        return self._connection is not None and self._connection.write_buffer_bytes > 0

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        """Send a message, until the peer's deadline is over.

        A send that was cancelled can be repeated: uvicorn waits for room first, and writes then.
        """
        settings, auto = self._settings, self._auto
        deadline = WriteDeadline(
            settings.write_timeout.seconds,
            self._taken_mark(),
            anyio.current_time(),
            farewell_s=settings.shutdown_grace.seconds,
        )
        look_s = look_interval_s(settings.write_timeout.seconds, settings.shutdown_grace.seconds)
        while True:
            with anyio.move_on_after(auto.wait_s(look_s)) as wait:
                await send(message)
            if not wait.cancelled_caught:
                return
            self.reader.note_unsent()
            auto.look(self._connection, is_full=True)
            is_closed = self.reader.is_sent_away
            if deadline.is_over(self._taken_mark(), anyio.current_time(), is_closed=is_closed):
                raise SendTimeoutError

    def _taken_mark(self) -> int:
        return 0 if self._connection is None else self._connection.taken_mark


def look_interval_s(write_timeout_s: float, farewell_s: float) -> float:
    """Return how often a stream that waits to write looks at its deadline."""
    look_s = min(write_timeout_s / LOOKS_PER_TIMEOUT, farewell_s / LOOKS_PER_FAREWELL)
    return max(LOOK_S_MIN, look_s)


def session_stream(session: Session, number: int | None, *, is_stopping: bool) -> Response:
    """Attach a reader that has seen this number of a kept session's cursor; return its stream.

    `is_stopping`: the gateway shuts down, and the stream only says so.

    Raises:
        LimitReached: as many sessions as may be.
    """
    if session.has_ended:
        return Response(status_code=204)  # as its goodbye has said
    if is_stopping:
        return stopping_stream()
    return EventStream(session, *attach_existing(session, number, jittered_retry_ms()))


def stopping_stream() -> EventSourceResponse:
    """Return the stream for a reader that comes while the gateway shuts down."""
    return refusal_stream(Problem("not-ready", "The gateway is shutting down."))


def refusal_stream(problem: Problem) -> EventSourceResponse:
    """Return a transient problem as a stream: a browser never retries after a 503."""

    async def refusal() -> AsyncIterator[bytes]:
        yield event("error", problem.document(), retry_ms=jittered_retry_ms())

    return EventSourceResponse(refusal(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})
