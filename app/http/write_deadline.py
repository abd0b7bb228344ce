"""Write deadlines: a peer that takes nothing of what waits for it is cut after `write_timeout`."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from tidegate.app.http.connection import Connection

LOOKS_PER_TIMEOUT: Final = 25  # a peer is cut at most two looks after its time

# Of a stream that waits to write; the times are those of its session, which may be short.
STREAM_LOOKS_PER_TIMEOUT: Final = 10
STREAM_LOOKS_PER_FAREWELL: Final = 2
LOOK_S_MIN: Final = 0.02

logger = logging.getLogger("tidegate.connections")


class WriteDeadline:
    """Decides when a peer is cut. Slow is not frozen: each byte taken starts the time again.

    Args:
        write_timeout_s: seconds without a byte taken.
        mark: the connection's `taken_mark` as the wait begins.
        now_s: the time then, in seconds that never go back.
        farewell_s: seconds that a closed session has in all, to take what is under way and its
            goodbye, however slowly.
    """

    __slots__ = ("_closed_at_s", "_farewell_s", "_mark", "_took_at_s", "_write_timeout_s")

    def __init__(
        self, write_timeout_s: float, mark: int, now_s: float, *, farewell_s: float = math.inf
    ) -> None:
        self._write_timeout_s = write_timeout_s
        self._farewell_s = farewell_s
        self._mark = mark
        self._took_at_s = now_s
        self._closed_at_s: float | None = None

    def is_over(self, mark: int, now_s: float, *, is_closed: bool = False) -> bool:
        """Return True once the peer is to be cut; `is_closed`: its session has been closed."""
        if mark != self._mark:
            self._mark, self._took_at_s = mark, now_s
        if is_closed and self._closed_at_s is None:
            self._closed_at_s = now_s
        if self._closed_at_s is not None and now_s - self._closed_at_s >= self._farewell_s:
            return True
        return now_s - self._took_at_s >= self._write_timeout_s


def look_interval_s(write_timeout_s: float, farewell_s: float) -> float:
    """Return how often a stream that waits to write looks at its deadline."""
    look_s = min(write_timeout_s / STREAM_LOOKS_PER_TIMEOUT, farewell_s / STREAM_LOOKS_PER_FAREWELL)
    return max(LOOK_S_MIN, look_s)


class WriteWatch:
    """Cuts the connections of one server that are past their deadline.

    A stream that waits to write checks its own deadline. The watch covers writes that no task waits
    for: an answer handed to the socket whole, the rest of a connection that is being closed, the
    last rows of a stream that has nothing new to send. A connection without unsent bytes costs
    nothing.
    """

    def __init__(self, write_timeout_s: float) -> None:
        self._write_timeout_s = write_timeout_s
        self._written: set[Connection] = set()
        # Connections with unsent bytes.
        self._waiting: dict[Connection, WriteDeadline] = {}
        self._next_look: asyncio.TimerHandle | None = None

    def around(self, app: Any, connection: Connection) -> Any:
        """Return the ASGI application with each of its sends under the watch."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            async def watched_send(message: Message) -> None:
                await send(message)
                self.wrote(connection)

            await app(scope, receive, watched_send)

        return watched

    def wrote(self, connection: Connection) -> None:
        """Check the connection soon: bytes were written."""
        self._written.add(connection)
        if self._next_look is None:
            self._arm(asyncio.get_running_loop())

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        wait_s = self._write_timeout_s / LOOKS_PER_TIMEOUT
        self._next_look = loop.call_later(wait_s, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        watched = self._written | self._waiting.keys()
        self._written.clear()
        before, self._waiting = self._waiting, {}
        for connection in watched:
            if not connection.unsent_bytes:  # all taken: watched again from its next write
                continue
            mark = connection.taken_mark
            deadline = before.get(connection)
            if deadline is None:
                deadline = WriteDeadline(self._write_timeout_s, mark, now_s)
            if deadline.is_over(mark, now_s):
                logger.debug("a connection whose peer takes nothing was cut")
                connection.give_up()
            else:
                self._waiting[connection] = deadline
        self._next_look = None
        if self._waiting:
            self._arm(loop)
