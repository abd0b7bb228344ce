"""The stream: one session's outputs as a response of server-sent events."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Sequence

import anyio
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.connection import Connection, connection_of
from app.late import late_events
from app.patience import Patience
from app.problems import Problem
from app.progress import Progress
from app.pulse import Pulse
from app.sessions.joining import joined
from app.sessions.reader import Reader
from app.sessions.session import Session
from app.sse import HEARTBEAT, event
from conflation.outputs import CloseReason, Goodbye, Output

# A socket that has taken everything gets a whole flush at once, the bytes that its lane shares;
# one with a backlog gets little at a time, so that newer values overtake what is not sent yet.
TAKE_BYTES_MAX = 1 << 20
TAKE_BYTES_BEHIND = 16 << 10
RETRY_MS = (1_000, 5_000)

logger = logging.getLogger("tidegate.stream")


def jittered_retry_ms() -> int:
    """When clients do well to come back: spread, so that they do not come at once."""
    return random.randint(*RETRY_MS)


class EventStream(EventSourceResponse):
    """Sends what its consumer takes; closes a peer that takes nothing for `write_timeout`.

    sse-starlette brings the response, disconnects and shutdown; its pings are off because ours
    come only when nothing else does.
    """

    def __init__(self, reader: Reader, hello: bytes) -> None:
        self.reader = reader
        self._consumer = reader.consumer
        self._hello = hello
        self._settings = reader.session.gateway.settings
        self._progress = Progress(reader.styles, reader.marks)
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
            if self._connection is not None and self._connection.is_given_up:
                self._consumer.give_up(CloseReason.WRITE_TIMEOUT)
            self.reader.close()

    async def _events(self) -> AsyncIterator[bytes]:
        yield self._hello
        auto, driver = self.reader.auto, self.reader.session.gateway.driver
        pulse = Pulse(self._settings.heartbeat.seconds, anyio.current_time())
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
            moment = self._consumer.moment(has_unsent=has_unsent, is_behind=is_behind)
            for late in late_events(outputs, self.reader.styles, moment):
                yield late
            pulse.wrote(anyio.current_time())
            is_behind = bool(outputs)

    def _encoded(self, outputs: Sequence[Output]) -> bytes:
        self._progress.wrote(outputs)
        return self.reader.encoded(outputs, jittered_retry_ms())

    def _quiet(self, pulse: Pulse) -> bytes:
        """What there is to say when nothing happens."""
        now = anyio.current_time()
        if self._progress.is_asked_for and pulse.progress_due(now):
            pulse.looked(now)
            told = self._progress.events(self._consumer.caught_up())
            if told:
                return told
        return HEARTBEAT if pulse.heartbeat_due(now) else b""

    def _has_unsent(self) -> bool:
        return self._connection is not None and self._connection.write_buffer_bytes > 0

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        """A send that was cut short is said again: uvicorn waits first, and writes then."""
        settings, auto = self._settings, self.reader.auto
        patience = Patience(
            settings.write_timeout.seconds,
            settings.shutdown_grace.seconds,
            self._unsent_bytes(),
            anyio.current_time(),
        )
        while True:
            with anyio.move_on_after(auto.wait_s(patience.look_s)) as wait:
                await send(message)
            if not wait.cancelled_caught:
                return
            self.reader.note_unsent()
            auto.look(self._connection, is_full=True)
            unsent_bytes, is_closed = self._unsent_bytes(), self.reader.is_sent_away
            if patience.is_over(unsent_bytes, anyio.current_time(), is_closed=is_closed):
                raise SendTimeoutError

    def _unsent_bytes(self) -> int:
        return 0 if self._connection is None else self._connection.unsent_bytes


def session_stream(session: Session, number: int | None, *, is_stopping: bool) -> Response:
    """The stream of a session that is kept, for a reader that has seen so much of its cursor.

    `is_stopping`: there is none any more, as the gateway shuts down.

    Raises:
        LimitReached: as many sessions as may be.
    """
    if session.has_ended:
        return Response(status_code=204)  # as its goodbye has said
    if is_stopping:
        return stopping_stream()
    return EventStream(*joined(session, number, jittered_retry_ms()))


def stopping_stream() -> EventSourceResponse:
    """What there is for a reader that comes while the gateway goes."""
    return refusal_stream(Problem("not-ready", "The gateway is shutting down."))


def refusal_stream(problem: Problem) -> EventSourceResponse:
    """A transient refusal: a browser never retries after 503, so it is told in a stream."""

    async def refusal() -> AsyncIterator[bytes]:
        yield event("error", problem.document(), retry_ms=jittered_retry_ms())

    return EventSourceResponse(refusal(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})
