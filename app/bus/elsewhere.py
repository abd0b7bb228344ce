"""Elsewhere: requests about sessions of other gateways are answered there, as if here."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.bus.neighbours import Neighbours
from app.inner_call import MARK, Call, Reply
from app.posted import REQUEST_BYTES_MAX
from app.problems import Problem
from app.query import SESSIONS_PATH, raw_path, read_body, session_id

OPERATIONS = frozenset(("/healthz", "/readyz", "/metrics"))


class Elsewhere:
    """Sends a request about a session that is not here to the gateway that has it.

    The stream of a session is not sent for: its route has the session brought here. A trace is not
    sent for either: it is of decisions that are taken where the stream is. Answers of operations
    say which gateway they are of.

    Args:
        app: answers what is here.
        neighbours: the gateways that share the bus.
    """

    def __init__(self, app: ASGIApp, neighbours: Neighbours) -> None:
        self._app = app
        self._neighbours = neighbours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have it answered.

        Raises:
            Problem: bus-unavailable; session-unknown for a trace that is taken elsewhere.
        """
        if scope["type"] == "http" and scope["path"] in OPERATIONS:
            send = self._signed(send)
        session = _session_of(scope)
        if session is None or self._neighbours.has(session):
            await self._app(scope, receive, send)
            return
        if scope["path"].endswith("/trace"):
            await self._refuse_trace(session)
            await self._app(scope, receive, send)
            return
        body = await read_body(Request(scope, receive), REQUEST_BYTES_MAX)
        call = Call.of(scope, body)
        reply = await self._neighbours.reply(session, call)
        if reply is not None:
            await _response(reply)(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)

    def _signed(self, send: Send) -> Send:
        pair = (b"tidegate-gateway", self._neighbours.gateway.encode())

        async def send_signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), pair]}
            await send(message)

        return send_signed

    async def _refuse_trace(self, session: str) -> None:
        if await self._neighbours.is_elsewhere(session):
            detail = "The session is read at another gateway, which alone can trace it."
            raise Problem("session-unknown", detail)


def _session_of(scope: Scope) -> str | None:
    """The session that a request is about, if it may be answered elsewhere."""
    if scope["type"] != "http" or MARK in scope or scope["path"].endswith("/events"):
        return None
    if not raw_path(scope).startswith(SESSIONS_PATH):
        return None
    try:
        return session_id(scope)
    except Problem:
        return None  # its route says so


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    length = (b"content-length", str(len(reply.body)).encode())
    has_length = reply.status != 204
    response.raw_headers = [*reply.headers, length] if has_length else list(reply.headers)
    return response


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, for whoever reads it next."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
