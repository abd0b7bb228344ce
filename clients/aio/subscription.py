"""A subscription of the asyncio client.

It detects a silent connection and resumes after the last event.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Self, TypeVar

import httpx2

from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable
from tidegate.clients.sse import Event
from tidegate.clients.stream import Stream, Streamed

AsyncConnect = Callable[[str], Awaitable[httpx2.Response]]
AsyncAsk = Callable[[Any], Awaitable[Any]]
"""Sends a `Request` and returns the decoded response."""
Awaited = TypeVar("Awaited")


class AsyncSubscription(Streamed):
    """An asynchronous iterator over the events of one subscription.

    It behaves like `Subscription` and takes the same arguments.
    """

    def __init__(
        self,
        connect: AsyncConnect,
        stream: Stream | None = None,
        *,
        for_s: float | None = None,
        ask: AsyncAsk | None = None,
    ) -> None:
        self._connect = connect
        self._ask = ask
        self._closed = asyncio.Event()
        super().__init__(stream or Stream(), for_s, self._closed.is_set, time.monotonic)
        self._awaited: asyncio.Future[Any] | None = None
        self._events = self._run()

    def close(self) -> None:
        """End the iteration immediately, even while another task waits in it."""
        self._closed.set()
        if self._awaited is not None:
            self._awaited.cancel()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()
        with contextlib.suppress(RuntimeError):  # another task iterates; `close` has ended that
            await self._events.aclose()

    async def _run(self) -> AsyncGenerator[Event]:
        while not self._finished():
            if self._stream.should_poll(time.monotonic()):
                try:
                    polled = await self._poll()
                except (GatewayProblem, GatewayUnreachable, AnswerInvalid) as error:
                    self._stream.poll_failed(error)
                    await self._wait(self._stream.wait_s())
                    continue
                for event in self._stream.poll_succeeded(polled) if polled else ():
                    yield event
                continue
            connecting = self._connect(self._stream.last_id)
            try:
                answer = await self._await_until_closed(connecting, self._left_s())
            except TimeoutError:
                return
            except (GatewayProblem, GatewayUnreachable, AnswerInvalid) as error:
                self._stream.failed(error, time.monotonic())
            else:
                if answer is None:
                    return
                async with contextlib.aclosing(self._events_of(answer)) as events:
                    async for event in events:
                        yield event
            if not self._finished():
                await self._wait(self._stream.wait_s())

    async def _events_of(self, answer: httpx2.Response) -> AsyncGenerator[Event]:
        """Yield the events of one connection, and record how it has ended."""
        try:
            for event in self._stream.opened(answer.status_code, answer.headers):
                yield event
            chunks = answer.aiter_raw()
            while not self._finished() and (chunk := await self._read(chunks)) is not None:
                for event in self._stream.events(chunk):
                    yield event
                if self._stream.is_dropped:
                    break
            if not self._finished():
                self._stream.ended()
        except GatewayUnreachable as error:
            self._stream.failed(error, time.monotonic())
        finally:
            await answer.aclose()

    async def _read(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next bytes; None if the stream or the iteration has ended.

        Raises:
            StreamLost: the connection was lost, or silent for too long.
        """
        seconds = self._limit_to_end(self._stream.silence_s_max)
        try:
            return await self._await_until_closed(anext(chunks, None), seconds)
        except TimeoutError:
            if self._finished():
                return None
            raise self._stream.silence_error(seconds) from None
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise self._stream.loss_error(f"was lost: {reason}") from None

    async def _poll(self) -> Any:
        """Send a polling request and return its response; None if the iteration has ended."""
        assert self._ask is not None, "polling requires `ask`"
        asking = self._ask(self._stream.next_poll())
        try:
            return await self._await_until_closed(asking, self._left_s())
        except TimeoutError:
            return None

    async def _await_until_closed(
        self, awaited: Awaitable[Awaited], seconds: float | None
    ) -> Awaited | None:
        """Await it for at most `seconds`; return None if closed first.

        Raises:
            TimeoutError: `seconds` have passed.
        """
        # A separate task, which `close` can cancel without cancelling the reader.
        self._awaited = waiting = asyncio.ensure_future(awaited)
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        finally:
            self._awaited = None

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), self._limit_to_end(seconds))
        except TimeoutError:
            return
