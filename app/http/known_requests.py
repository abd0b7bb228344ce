"""Requests that equal an earlier one: what reading the first of them has found serves the others.

A route that has let a request pass may note how the next one like it is answered. Two places look
it up:

- The innermost layer (`KnownRequests`) finds the route's function by what routing depends on. That
  spares the framework's routing and parameters, as dear as all that a publish or a stream needs.
- The protocol finds, by the whole header, a function that answers at once: without a task, without
  the layers, in the turn of the loop in which the request came. The layers decide by the header
  alone and have let an equal one pass, and the fields of their answer are the same, too.

Refusals come from the whole road alone. What cannot be answered at once goes there, as if it had
never been looked at: a function that answers at once has no effect where it returns None.

What depends on more than the header is asked again by the function itself, such as whether a token
still holds, or stands in the way of the second place: a gateway that logs its requests answers
nothing at once, and one that asks for tokens begins no stream so.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app.http.exchange import Exchange
from tidegate.app.http.requests import TOPICS_PATH
from tidegate.app.http.wire import Fields
from tidegate.app.streams.connection import HandedOver

Value = TypeVar("Value")
Key = tuple[bytes | str, ...]
Respond = Callable[[Request], Awaitable[Response]]
"""A route's function: it reads all that it needs from the request."""
HandOver = Callable[[asyncio.Protocol], HandedOver]
Begin = Callable[[Scope, HandOver, bytes], None]
"""Begins a stream on the connection of a request, which it takes over, with an answer's head."""
AnswerAtOnce = Callable[[bytes], bytes | Begin | None]
"""Takes a body and returns that of the answer, or a stream; None, without effect: it cannot."""

# Clients choose the texts: both the number and the size of what is kept are bounded.
KNOWN_MAX: Final = 1_000
KEY_BYTES_MAX: Final = 2 << 10
# asyncio's one read of a socket: a body that came so is answered without another turn of the loop.
BODY_BYTES_MAX: Final = 256 << 10
# Of one that is still to come, as much as is read before somebody takes it.
WAITED_BYTES_MAX: Final = 64 << 10

PUBLISH: Final = ("POST", b"/messages")
SUBSCRIBE: Final = ("GET", b"/subscribe")
SECRET: Final = frozenset({b"authorization", b"cookie"})
NOTED: Final = "tidegate.known"
"""The place in a scope's extensions of what a route has noted for equal requests."""
NOTHING: Final = None, None
LENGTH: Final = b"content-length"
_SLASHES: Final = TOPICS_PATH.count(b"/") + 1
_TOPIC_AT: Final = TOPICS_PATH.count(b"/")


class Latest(Generic[Value]):
    """The values that were used latest, by their keys.

    A text that is too long to keep is read each time.
    """

    def __init__(self, most: int = KNOWN_MAX) -> None:
        self._most = most
        self._values: dict[Key, Value] = {}  # the latest used last

    def __len__(self) -> int:
        return len(self._values)

    def find(self, request_key: Key) -> Value | None:
        """Return a value, which counts as used."""
        value = self._values.pop(request_key, None)
        if value is not None:
            self._values[request_key] = value
        return value

    def note(self, request_key: Key, value: Value) -> None:
        """Keep a value; the one that was used longest ago makes room."""
        if sum(map(len, request_key)) > KEY_BYTES_MAX:
            return
        self._values.pop(request_key, None)
        self._values[request_key] = value
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]


class RequestRoute(NamedTuple):
    """The route of a request, as routing found it, and its function."""

    route: object
    respond: Respond

    def note_route(self, scope: Scope) -> None:
        """Say in the scope what routing would, for the log of requests and the watchdog."""
        scope["route"] = self.route
        scope["path_params"] = {"topic": scope["path"].split("/")[_TOPIC_AT]}


class ImmediateAnswer(NamedTuple):
    """How requests with one header are answered in one turn of the loop.

    `before` and `after` are the fields of the answer, around the value of its length if it has one.
    """

    known: RequestRoute
    answer: AnswerAtOnce
    before: bytes
    after: bytes

    def answered(self, exchange: Exchange, hand_over: HandOver) -> bytes | None:
        """Answer a whole request; return what to write, b"" for a stream, None if it cannot."""
        if exchange.more_body or not exchange.keep_alive or exchange.expects_continue:
            return None
        if len(exchange.body) > BODY_BYTES_MAX:
            return None
        self.known.note_route(exchange.scope)
        answer = self.answer(bytes(exchange.body))
        if answer is None:
            return None
        exchange.has_begun = True
        own = b"".join([b"%b: %b\r\n" % field for field in exchange.own_fields])
        before = b"HTTP/1.1 200 OK\r\n" + own + self.before
        if isinstance(answer, bytes):
            return before + b"%d" % len(answer) + self.after + answer
        answer(exchange.scope, hand_over, before + self.after)
        return b""


def may_wait(exchange: Exchange) -> bool:
    """Return True unless the body is large already, or its client waits to be asked for it."""
    return len(exchange.body) <= WAITED_BYTES_MAX and not exchange.expects_continue


class KnownRequests:
    """What routes have noted, by what routing depends on and by the whole header.

    Args:
        at_once: the kinds that may be; none that needs a layer each time.
    """

    def __init__(self, *at_once: tuple[str, bytes]) -> None:
        self._at_once = at_once
        self.routes = Latest[RequestRoute]()
        self.heads = Latest[ImmediateAnswer]()

    def note(self, scope: Scope, respond: Respond, answer: AnswerAtOnce | None = None) -> None:
        """Note how requests like one that was let pass are answered; called by its route.

        `answer`: answers at once, if that is possible for requests with this header.
        """
        key = routing_key(scope)
        if key is None:
            return
        known = RequestRoute(scope["route"], respond)
        self.routes.note(key, known)
        if self._at_once and answer is not None:
            scope.get("extensions", {})[NOTED] = known, answer

    def find(self, scope: Scope) -> RequestRoute | None:
        """Return what is known by all that routing depends on."""
        key = routing_key(scope)
        return None if key is None else self.routes.find(key)

    def head_key(self, scope: Any) -> Key | None:
        """Return the key of a request by its whole header; None for one that has no such key."""
        return header_key(scope, self._at_once) if self._at_once else None

    def find_immediate_answer(self, head: Key | None) -> ImmediateAnswer | None:
        """Return what is known by the whole header of a request."""
        return None if head is None else self.heads.find(head)

    def noting(self, app: Any, head: Key | None) -> Any:
        """Return the ASGI application, of which the fields of a noted answer are kept."""
        if head is None:
            return app

        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            async def noted_send(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] == 200:
                    known, answer = scope["extensions"].get(NOTED, NOTHING)
                    if known is not None and answer is not None:
                        fields = _around_length(message["headers"])
                        self.heads.note(head, ImmediateAnswer(known, answer, *fields))
                await send(message)

            await app(scope, receive, noted_send)

        return noted


def forget_answer(scope: Scope) -> None:
    """Keep the route alone of what was noted: the answer is unlike one that is given at once."""
    scope.get("extensions", {}).pop(NOTED, None)


class KnownRoutes:
    """Hands a known request to its route past the framework; the innermost middleware."""

    def __init__(self, app: ASGIApp, known: KnownRequests) -> None:
        self.app = app
        self.known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the route answer, or the application.

        Raises:
            Refusal: as the route.
        """
        known = self.known.find(scope) if scope["type"] == "http" else None
        if known is None:
            await self.app(scope, receive, send)
            return
        known.note_route(scope)
        response = await known.respond(Request(scope, receive))
        await response(scope, receive, send)


def routing_key(scope: Scope) -> Key | None:
    """Return all that routing depends on, and what a route notes; None for other requests.

    The route of publishing takes no dependencies or parameters and reads all by itself, so that one
    topic is like another. Of subscribing all counts that is read but the place to continue at.
    """
    method, path = scope["method"], _path(scope)
    if _is(PUBLISH, method, path):
        return PUBLISH
    if _is(SUBSCRIBE, method, path):
        accepted = [value for name, value in scope["headers"] if name == b"accept"]
        return method, path, scope["query_string"], *accepted
    return None


def header_key(scope: Scope, kinds: Iterable[tuple[str, bytes]]) -> Key | None:
    """Return all that the layers and the route read before a body; None for other kinds."""
    method, path = scope["method"], _path(scope)
    if not any(_is(kind, method, path) for kind in kinds):
        return None
    key: list[bytes | str] = [method, scope["scheme"], path, scope["query_string"]]
    for name, value in scope["headers"]:
        if name in SECRET:  # no token is kept
            key += name, hashlib.sha256(value).digest()
        elif name != LENGTH:  # nobody reads it but the parser, and those who bound a body
            key += name, value
    return tuple(key)


def _is(kind: tuple[str, bytes], method: str, path: bytes) -> bool:
    return (
        method == kind[0]
        and path.endswith(kind[1])
        and path.startswith(TOPICS_PATH)
        and path.count(b"/") == _SLASHES
    )


def _path(scope: Scope) -> bytes:
    # As sent: decoding makes unequal paths equal. Another server may not give it.
    path: bytes | None = scope.get("raw_path")
    return b"" if path is None else path


def _around_length(fields: Fields) -> tuple[bytes, bytes]:
    """Return the lines of fields before and after the value of the length.

    An answer without a length is written in chunks, which the exchange says in its last field.
    """
    lines = [b"%b: %b\r\n" % (name.lower(), value) for name, value in fields]
    names = [name.lower() for name, _ in fields]
    if LENGTH not in names:
        return b"".join(lines), b"transfer-encoding: chunked\r\n\r\n"
    at = names.index(LENGTH)
    before = b"".join(lines[:at]) + LENGTH + b": "
    return before, b"\r\n" + b"".join(lines[at + 1 :]) + b"\r\n"
