"""The stream: one session's outputs as a response of server-sent events."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Sequence

import anyio
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from app.connection import Connection, connection_of
from app.driver import Consumer
from app.problems import Problem
from app.settings import Settings
from app.sse import HEARTBEAT, Format, encode, event
from conflation.outputs import CloseReason, Goodbye, Output

# A socket that has taken everything gets a whole flush at once, the bytes that its lane shares;
# one with a backlog gets little at a time, so that newer values overtake what is not sent yet.
TAKE_BYTES_MAX = 1 << 20
TAKE_BYTES_BEHIND = 16 << 10
LOOKS_PER_TIMEOUT = 10
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

    def __init__(self, consumer: Consumer, form: Format, hello: bytes, settings: Settings) -> None:
        self._consumer = consumer
        self._form = form
        self._hello = hello
        self._settings = settings
        self._connection: Connection | None = None
        super().__init__(self._events(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream until its end, the peer's, or the write time-out."""
        self._connection = connection_of(scope)
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            logger.info("session %s: %s", self._consumer.session, CloseReason.WRITE_TIMEOUT)
            self._consumer.give_up(CloseReason.WRITE_TIMEOUT)
            if self._connection is not None:
                self._connection.abort()
        finally:
            self._consumer.close()

    async def _events(self) -> AsyncIterator[bytes]:
        yield self._hello
        while True:
            outputs = self._consumer.take(self._take_bytes())
            if outputs:
                yield encode(outputs, self._form, jittered_retry_ms())
                if _is_over(outputs):
                    return
            elif not await self._consumer.wait(self._settings.heartbeat.seconds):
                yield HEARTBEAT

    def _take_bytes(self) -> int:
        behind = self._connection is not None and self._connection.write_buffer_bytes > 0
        return TAKE_BYTES_BEHIND if behind else TAKE_BYTES_MAX

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        """Slow is not frozen: as long as the peer takes some bytes, it may take its time.

        uvicorn waits before it writes, so a send that was cut short can be said again.
        """
        timeout_s = self._settings.write_timeout.seconds
        unsent_bytes, took_at = self._unsent_bytes(), anyio.current_time()
        while True:
            with anyio.move_on_after(timeout_s / LOOKS_PER_TIMEOUT) as wait:
                await send(message)
            if not wait.cancelled_caught:
                return
            before, unsent_bytes = unsent_bytes, self._unsent_bytes()
            if unsent_bytes < before:
                took_at = anyio.current_time()
            elif anyio.current_time() - took_at >= timeout_s:
                raise SendTimeoutError

    def _unsent_bytes(self) -> int:
        return 0 if self._connection is None else self._connection.unsent_bytes


def refusal_stream(problem: Problem) -> EventSourceResponse:
    """A transient refusal: a browser never retries after 503, so it is told in a stream."""

    async def refusal() -> AsyncIterator[bytes]:
        yield event("error", problem.document(), retry_ms=jittered_retry_ms())

    return EventSourceResponse(refusal(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})


def _is_over(outputs: Sequence[Output]) -> bool:
    return isinstance(outputs[-1], Goodbye)
