"""A session of many subscriptions on one stream, for an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

from tidegate.clients.aio.subscription import AsyncSubscription
from tidegate.clients.answers import Fields
from tidegate.clients.replica import Replicas, SessionEvent
from tidegate.clients.requests import subscribing

AsyncAsk = Callable[[str, str, Fields | None], Awaitable[Fields]]
"""From method, path after the session's address, and body to the JSON object of the answer."""


class AsyncSession:
    """Subscriptions on one stream, whose events one task reads by iterating.

    Other tasks may subscribe, change and end subscriptions meanwhile. Methods, arguments,
    attributes and errors are those of `Session`.
    """

    def __init__(self, session_id: str, ask: AsyncAsk, events: AsyncSubscription) -> None:
        self.id = session_id
        self.replicas = Replicas()
        self._ask = ask
        self._events = events

    async def subscribe(
        self,
        topic: str,
        *,
        options: str = "",
        filter: str | None = None,
        order_by: str | None = None,
        command: str | None = None,
        format: str | None = None,
    ) -> str:
        """Add a subscription to a topic or a pattern, and return its name."""
        given = subscribing(options, filter, order_by, command, format)
        body = {"topic": topic, **given}
        return self.replicas.named((await self._ask("POST", "/subscriptions", body))["sub"])

    async def change(self, name: str, **change: Any) -> Fields:
        """Change a running subscription, and return what was granted."""
        return await self._ask("PATCH", f"/subscriptions/{name}", change)

    async def end(self, name: str) -> None:
        """End a subscription; `unsubscribed` follows."""
        await self._ask("DELETE", f"/subscriptions/{name}", None)

    async def tune(self, **tuning: Any) -> Fields:
        """Set `limits` or `conflated`, and return the session."""
        return await self._ask("PATCH", "", tuning)

    async def show(self) -> Fields:
        """Return the session's state and its subscriptions."""
        return await self._ask("GET", "", None)

    def stop(self) -> None:
        """Stop reading, at once also where another task waits; the gateway keeps the session."""
        self._events.close()

    async def close(self) -> None:
        """Stop reading, and close the session at the gateway."""
        self.stop()
        await self._ask("DELETE", "", None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[SessionEvent]:
        """Yield every event of the stream, applied to the replicas."""
        async with self._events:
            async for event in self._events:
                applied = self.replicas.applied(event)
                for sentence in applied.unreadable:
                    self._events.report(sentence)
                yield applied
