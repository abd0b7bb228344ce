"""A publisher for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from tidegate.clients.answers import Published
from tidegate.clients.publishing.outbox import Batch, Outbox
from tidegate.clients.retry import Retry, repeated

AsyncSend = Callable[[Batch], Awaitable[Published]]


class AsyncPublisher:
    """Sends messages to one topic in batches, in their order, and each exactly once.

    It behaves as `Publisher`; arguments and errors are the same. Close it before the event loop
    ends, or use it as an asynchronous context manager.
    """

    def __init__(self, send: AsyncSend, outbox: Outbox, retry: Retry) -> None:
        self._send = send
        self._retry = retry
        self._outbox = outbox
        self._moved = asyncio.Condition()
        self._is_closed = False
        self._task = asyncio.create_task(self._run(), name="tidegate-publisher")

    @property
    def delivered(self) -> int:
        """How many messages the gateway has confirmed."""
        return self._outbox.delivered

    @property
    def unsent(self) -> list[bytes]:
        """The messages that no answer has confirmed, in their order."""
        return self._outbox.unsent

    async def publish(self, message: Any, sequence: int | None = None) -> None:
        """Queue a message: a JSON value, or its text as bytes; wait while too much is unsent."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._outbox.has_room or self._is_closed)
            if self._is_closed:
                raise ValueError("the publisher is closed")
            self._outbox.add(message, time.monotonic(), sequence)
            self._moved.notify_all()

    async def flush(self, seconds_max: float | None = None) -> None:
        """Send all queued messages, and wait until they are confirmed."""

        def is_done() -> bool:
            self._outbox.check()
            return self._outbox.delivered >= count

        async with asyncio.timeout(seconds_max), self._moved:
            count = self._outbox.flush()
            self._moved.notify_all()
            await self._moved.wait_for(is_done)

    async def close(self) -> None:
        """Flush; `publish` then raises."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.flush()
        finally:
            await self._task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _run(self) -> None:
        while (batch := await self._next()) is not None:
            try:
                send = functools.partial(self._send, batch)
                published = await repeated(send, self._retry.attempts())
            except Exception as error:
                async with self._moved:
                    self._outbox.failed(error)
                    self._moved.notify_all()
                return
            async with self._moved:
                self._outbox.sent(published.sequence)
                self._moved.notify_all()

    async def _next(self) -> Batch | None:
        """Wait for a batch that is due; return None once the publisher is closed and empty."""
        async with self._moved:
            while True:
                if self._is_closed:
                    self._outbox.flush()
                now = time.monotonic()
                batch = self._outbox.next(now)
                if batch is not None or self._is_closed:
                    return batch
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._moved.wait(), self._outbox.due_s(now))
