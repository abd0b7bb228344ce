"""The write watch: a peer that takes nothing for too long is cut, whatever it was being sent.

A stream notices by itself that it cannot go on. What nobody waits for is noticed here: an answer
that was handed to the socket whole, the rest of a connection that is being closed, a stream that
has nothing new to send while its peer has not acknowledged the last of it.
"""

import asyncio
import logging
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from app.connection import TransportConnection

LOOKS_PER_TIMEOUT: Final = 25  # a peer is cut at most two looks after its time

logger = logging.getLogger("tidegate.connections")


class WriteWatch:
    """Looks at what was written to, and at what is waiting; a silent connection costs nothing.

    Args:
        write_timeout_s: who has something to take and takes nothing for so long is cut.
    """

    def __init__(self, write_timeout_s: float) -> None:
        self._write_timeout_s = write_timeout_s
        self._written: set[TransportConnection] = set()
        # Those with something unacknowledged: (mark, loop time since when it stands there).
        self._waiting: dict[TransportConnection, tuple[int, float]] = {}
        self._next_look: asyncio.TimerHandle | None = None

    def around(self, app: Any, connection: TransportConnection) -> Any:
        """The same ASGI application; what it sends is looked after until the peer has taken it."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            async def watched_send(message: Message) -> None:
                await send(message)
                self.wrote(connection)

            await app(scope, receive, watched_send)

        return watched

    def wrote(self, connection: TransportConnection) -> None:
        """Something was written to it; it is looked at soon."""
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
            if not connection.unsent_bytes:
                continue
            mark = connection.taken_mark
            stood_at, since_s = before.get(connection, (mark, now_s))
            if stood_at != mark:
                since_s = now_s
            if now_s - since_s >= self._write_timeout_s:
                logger.debug("a connection whose peer takes nothing was cut")
                connection.give_up()
            else:
                self._waiting[connection] = (mark, since_s)
        self._next_look = None
        if self._waiting:
            self._arm(loop)
