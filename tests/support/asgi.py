"""A request to an ASGI application and its answer, under a server that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

from tests.support.deadlines import HANGS_S
from tidegate.clients.sse import Event, Parser


def scope_of(method: str = "GET", **headers: str) -> Scope:
    """The scope of a request; underscores in names of headers are dashes."""
    fields = [
        (name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()
    ]
    return {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": fields}


def request_of(method: str = "GET", **headers: str) -> Request:
    """A request with these headers."""
    return Request(scope_of(method, **headers))


class Answer:
    """What an application sends, and a client that takes it or does not.

    While `is_frozen` a send waits. `writes_first`: as in hypercorn the bytes are on their way
    before the send waits; in uvicorn a send waits for room, and writes then.
    """

    def __init__(self, *, writes_first: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.raw = bytearray()
        self.is_over = False
        self.is_cut = False
        self.on_taken: Callable[[], None] = lambda: None
        self._writes_first = writes_first
        self._changed = asyncio.Condition()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._left = asyncio.Event()
        self._parser = Parser()
        self._events: list[Event] = []
        self._parsed = 0

    def freeze(self) -> None:
        """Take nothing from now on."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Take what is sent again."""
        self._thawed.set()

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    async def receive(self) -> Message:
        """The client sends nothing, and leaves at some time."""
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take a message, as the server does."""
        if self._writes_first:
            self._take(message)
        await self._thawed.wait()
        if not self._writes_first:
            self._take(message)
        async with self._changed:
            self._changed.notify_all()

    def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        self.raw += message.get("body", b"")
        self.on_taken()
        self.is_over = not message.get("more_body", False)

    async def until(self, mark: bytes) -> bytes:
        """All that was received, once `mark` is in it."""
        async with asyncio.timeout(HANGS_S), self._changed:
            await self._changed.wait_for(lambda: mark in self.raw or self.is_over)
        assert mark in self.raw, bytes(self.raw)
        return bytes(self.raw)

    @property
    def events(self) -> list[Event]:
        """The events so far."""
        new = bytes(self.raw[self._parsed :])
        self._parsed = len(self.raw)
        self._events += self._parser.feed(new)
        return self._events

    def values(self) -> list[str]:
        """The texts of the messages so far."""
        return [event.text for event in self.events if event.name == "message"]


@contextlib.asynccontextmanager
async def served(
    app: ASGIApp, scope: Mapping[str, Any], *, writes_first: bool = False
) -> AsyncIterator[Answer]:
    """Serve one request; the client leaves at the end of the block."""
    answer = Answer(writes_first=writes_first)
    serving = asyncio.create_task(_serve(app, scope, answer))
    try:
        yield answer
    finally:
        answer.leave()
        answer.thaw()
        async with asyncio.timeout(HANGS_S):
            await serving


async def _serve(app: ASGIApp, scope: Mapping[str, Any], answer: Answer) -> None:
    await app(dict(scope), answer.receive, answer.send)
    answer.is_cut = not answer.is_over
