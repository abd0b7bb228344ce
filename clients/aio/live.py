"""A live dict for programs with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Self

from tidegate.clients.aio.subscription import AsyncSubscription
from tidegate.clients.errors import (
    GatewayError,
    GatewayProblem,
    without_traceback,
)
from tidegate.clients.live.records import FLUSH_SECONDS_MAX, Records
from tidegate.clients.live.request import READY_SECONDS_MAX, LiveRequest
from tidegate.clients.replica import Changes

AsyncSubscribe = Callable[[Mapping[str, str]], AsyncSubscription]


class AsyncLive(Records):
    """The records of a subscription, which a task keeps up to date.

    It behaves as `Live`; arguments are the same.
    """

    def __init__(self, request: LiveRequest, subscribe: AsyncSubscribe) -> None:
        super().__init__(request)
        self._moved = asyncio.Condition()
        self._subscribe = subscribe
        self._subscription: AsyncSubscription | None = None
        self._task = asyncio.create_task(self._run(), name="tidegate-live")

    @property
    def outage(self) -> GatewayError | None:
        """The reason why the connection is lost at the moment; None while it is there."""
        return None if self._subscription is None else self._subscription.standing_error

    @property
    def is_polling(self) -> bool:
        """True while the records follow by long-polling, as no event of the stream gets through."""
        return self._subscription is not None and self._subscription.is_polling

    async def ready(self, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Wait until the records are complete for the first time.

        Raises:
            GatewayError: refused, or not reached.
        """
        try:
            async with asyncio.timeout(seconds_max), self._moved:
                await self._moved.wait_for(lambda: self.is_ready or bool(self.end))
        except TimeoutError:
            raise self._late(seconds_max, self.outage) from None
        if self.error is not None:
            raise without_traceback(self.error)

    async def changes(self, for_s: float | None = None) -> AsyncIterator[Changes]:
        """Yield the changes from now on; the first are the records that are held already.

        A step is a whole flush or snapshot, several of them as one for a loop that is behind. How
        often they come is the interval of the subscription. It ends with the subscription.

        Args:
            for_s: end the iteration after so many seconds; None for never.

        Raises:
            GatewayError: what ended the subscription.
        """
        ends_at = None if for_s is None else time.monotonic() + for_s
        reader = self._read()
        try:
            while True:
                left_s = None if ends_at is None else max(0.0, ends_at - time.monotonic())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s), self._moved:
                        await self._moved.wait_for(lambda: self._has_step(reader) or bool(self.end))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_SECONDS_MAX), self._moved:
                        await self._moved.wait_for(
                            lambda: not self._flush_has_more or bool(self.end)
                        )
                changes, has_ended = self._take_step(reader), bool(self.end)
                if changes:
                    yield changes
                elif has_ended and self.error is not None:
                    raise without_traceback(self.error)
                elif has_ended or (ends_at is not None and time.monotonic() >= ends_at):
                    return
        finally:
            self._readers.remove(reader)

    async def close(self) -> None:
        """End the subscription; the records stay as they are."""
        self._task.cancel()
        await asyncio.wait([self._task])
        # A task that is canceled before its first step does not run its `finally`.
        self._finish("CLOSED")

    async def __aenter__(self) -> Self:
        try:
            await self.ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _run(self) -> None:
        reason: str = "CLOSED"
        error: Exception | None = None
        # Any error, also a fault of this client: a reader would wait for ever.
        try:
            if not await self._attempt(with_removals=self.request.wants_removals):
                await self._attempt(with_removals=False)
        except Exception as found:
            reason, error = str(found), found
        finally:
            self._finish(reason, error)
            async with self._moved:
                self._moved.notify_all()

    async def _attempt(self, *, with_removals: bool) -> bool:
        """Follow the subscription to its end; return False if it has to be without removals."""
        try:
            await self._apply_all(self.request.params(with_removals))
        except GatewayProblem as problem:
            if not with_removals:
                raise
            if self.request.has_no_removals(problem):
                return False
            raise self.request.explained(problem) from None
        return True

    async def _apply_all(self, params: Mapping[str, str]) -> None:
        self._subscription = self._subscribe(params)
        async with self._subscription as subscription:
            async for event in subscription:
                if not self._take(event, subscription.report):
                    subscription.restart()
                async with self._moved:
                    self._moved.notify_all()
