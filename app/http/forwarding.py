"""The middleware that forwards requests about a session to the gateway that owns it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app.calls import Reply
from tidegate.app.cluster.peers import Peers
from tidegate.app.http.internal_call import MARK, call_of
from tidegate.app.http.requests import (
    REQUEST_BYTES_MAX,
    SESSIONS_PATH,
    raw_path,
    read_body,
    session_id,
)
from tidegate.app.http.wire import GATEWAY
from tidegate.app.refusals import Refused

OPERATIONS = frozenset(("/healthz", "/readyz", "/metrics"))


class ForwardToOwner:
    """Forwards a request about a session that is not here to its owner.

    Two kinds are not forwarded: the event stream, because its route moves the session here, and a
    trace, because only the gateway with the stream can observe its decisions. Replies to operations
    requests carry the id of the gateway that answered.

    Args:
        app: handles requests about sessions that are here.
        peers: the other gateways of the cluster.
    """

    def __init__(self, app: ASGIApp, peers: Peers) -> None:
        self._app = app
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request here or forward it.

        Raises:
            Refused: bus-unavailable; session-unknown for a trace at another gateway.
        """
        # Behind one address a probe cannot tell otherwise which gateway is not ready.
        if scope["type"] == "http" and scope["path"] in OPERATIONS:
            send = self._with_gateway_id(send)
        session = _session_of(scope)
        if session is None or self._peers.has(session):
            await self._app(scope, receive, send)
            return
        if scope["path"].endswith("/trace"):
            await self._refuse_trace(session)
            await self._app(scope, receive, send)
            return
        # Read whole before the owner is asked: a call is one message on the bus, and may be sent
        # again.
        body = await read_body(Request(scope, receive), REQUEST_BYTES_MAX)
        call = call_of(scope, body)
        reply = await self._peers.forward(session, call)
        if reply is not None:
            await _response(reply)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _with_gateway_id(self, send: Send) -> Send:
        pair = (GATEWAY, self._peers.gateway.encode())

        async def send_with_gateway_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), pair]}
            await send(message)

        return send_with_gateway_id

    async def _refuse_trace(self, session: str) -> None:
        if await self._peers.is_elsewhere(session):
            detail = "The session's stream is at another gateway, and only that one can trace it."
            raise Refused("session-unknown", detail)


def _session_of(scope: Scope) -> str | None:
    """Return the session id of a request that may be forwarded, or None."""
    if scope["type"] != "http" or MARK in scope or scope["path"].endswith("/events"):
        return None
    if not raw_path(scope).startswith(SESSIONS_PATH):
        return None
    try:
        return session_id(scope)
    except Refused:
        return None  # its route says why


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    length = (b"content-length", str(len(reply.body)).encode())
    has_length = reply.status != 204
    response.raw_headers = [*reply.headers, length] if has_length else list(reply.headers)
    return response


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that replays a body already read."""
    is_read = False

    async def receive_replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_replayed
