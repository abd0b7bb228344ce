"""The requests that come thousands of times a second, by a shorter way to their routes.

A plain publish, a plain subscription and a polling reader are answered below ASGI, in the
iteration in which they arrive, or at a flush. They need no task, no middleware and no routing of
the framework: what middleware and routes call is called here. A request that has to wait for a
store or a bus, that is refused, or that comes from a page of another origin, goes to the
application as if nobody had looked at it: nothing here has an effect unless it answers. There
`DirectRoutes` spares it the framework's routing.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.app.access.grants import WRITE, Subject
from tidegate.app.gateway import Gateway
from tidegate.app.http.answers import PIECE_BYTES, body_pieces
from tidegate.app.http.exchange import Exchange
from tidegate.app.http.middleware import Checks, ProtectiveFields
from tidegate.app.http.protocol import HandOver, RequestKind
from tidegate.app.http.publish_request import PLAIN, PublishRequest
from tidegate.app.http.requests import (
    PATHS_MAX,
    TOPICS_PATH,
    raw_path,
    require_accept,
    writable_topic_name,
)
from tidegate.app.http.routes import messages, stream, subscribe
from tidegate.app.http.routes.subscribe_plan import SubscribePlans
from tidegate.app.http.wire import Fields
from tidegate.app.streams.sse import EVENT_STREAM
from tidegate.app.topics.ingest import BodyForm
from tidegate.keys.errors import Refusal

if TYPE_CHECKING:  # without authentication its libraries are not loaded
    from tidegate.app.access.access import Access

PUBLISH: Final = ("POST", b"/messages")
SUBSCRIBE: Final = ("GET", b"/subscribe")
POLL: Final = ("GET", b"/stream")
# asyncio's one read of a socket: a body that came so is answered without another iteration.
BODY_BYTES_MAX: Final = 256 << 10
BEARER: Final = b"Bearer "
_SLASHES: Final = TOPICS_PATH.count(b"/") + 1


@lru_cache(maxsize=PATHS_MAX)
def kind_at(method: str, path: bytes) -> RequestKind | None:
    """Return which of them a request is, by its method and path."""
    for kind in (PUBLISH, SUBSCRIBE, POLL):
        if method == kind[0] and path.endswith(kind[1]):
            is_topic = path.startswith(TOPICS_PATH) and path.count(b"/") == _SLASHES
            return kind if is_topic else None
    return None


class HotPath:
    """Answers plain publishes, subscriptions and polling readers in one iteration.

    Args:
        gateway: what is published to and subscribed to.
        access: who may; None where nobody is asked for a token.
        plans: of subscriptions, which the route shares.
    """

    def __init__(self, gateway: Gateway, access: Access | None, plans: SubscribePlans) -> None:
        settings = gateway.settings
        self._gateway = gateway
        self._access = access
        self._plans = plans
        self._checks = Checks(settings)
        self._fields = ProtectiveFields(settings.hsts)
        self._has_origins = bool(settings.allowed_origins)
        self._sending: set[asyncio.Task[None]] = set()

    def kind_of(self, exchange: Exchange) -> RequestKind | None:
        """Return the kind of a request that may be answered here, by its header; else None."""
        scope = exchange.scope
        kind = kind_at(scope["method"], scope["raw_path"])
        if kind is None or not exchange.keep_alive or exchange.expects_continue:
            return None
        # The answers to pages of other origins have more fields.
        if self._has_origins and any(name == b"origin" for name, _ in scope["headers"]):
            return None
        # A store that has to be waited for leaves every publish to the application.
        if kind is PUBLISH and not self._gateway.store.is_immediate:
            return None
        return None if kind is SUBSCRIBE and self._access is not None else kind

    def wants_body(self, exchange: Exchange, kind: RequestKind) -> bool:
        """Return True if the header alone is refused nothing, so that the body may be kept here."""
        if kind is not PUBLISH:
            return False
        scope = exchange.scope
        try:
            self._checks.check(scope)
            plain = self._plain(scope)
            if plain is None:
                return False
            self._gateway.quotas.check_publish(plain[2])
        except Refusal:
            return False
        lengths = (value for name, value in scope["headers"] if name == b"content-length")
        return int(next(lengths, b"0")) <= BODY_BYTES_MAX  # digits alone, as the parser has read it

    def answer(self, exchange: Exchange, kind: RequestKind, hand_over: HandOver) -> bool:
        """Answer a whole request; return False, without effect, where the application has to."""
        if exchange.more_body or len(exchange.body) > BODY_BYTES_MAX:
            return False
        try:
            self._checks.check(exchange.scope)
            if kind is PUBLISH:
                return self._publish(exchange)
            if kind is POLL:
                return self._poll(exchange)
            return self._subscribe(exchange, hand_over)
        except Refusal:
            return False  # the application will say why

    def _plain(self, scope: Scope) -> tuple[str, BodyForm, Subject | None] | None:
        """Return topic, form and subject of a publish; None where the application has to answer.

        Raises:
            Refusal: the header is refused.
        """
        name = writable_topic_name(scope)
        subject: Subject | None = None
        if self._access is not None:
            subject = _subject(self._access, scope)
            if subject is None:
                return None
            subject.grants.require(WRITE, name)
        asked = PublishRequest.read(scope, self._gateway.store)
        return (name, asked.form, subject) if asked in PLAIN.values() else None

    def _publish(self, exchange: Exchange) -> bool:
        scope = exchange.scope
        plain = self._plain(scope)
        if plain is None:
            return False
        name, form, subject = plain
        body = messages.publish_at_once(self._gateway, name, form, subject, bytes(exchange.body))
        if body is None:
            return False
        fields = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]
        exchange.respond(200, self._completed(fields, scope), body)
        return True

    def _subscribe(self, exchange: Exchange, hand_over: HandOver) -> bool:
        scope = exchange.scope
        if exchange.body:
            return False
        require_accept(scope, EVENT_STREAM)
        last_event_id = subscribe.last_event_id_of(scope)
        opened = subscribe.stream_at_once(self._gateway, self._plans.of(scope), last_event_id)
        if opened is None:
            return False
        opened.negotiate(scope)
        opened.begin(hand_over, exchange.begin(200, self._completed(opened.fields, scope)))
        return True

    def _poll(self, exchange: Exchange) -> bool:
        """Answer a polling reader, perhaps at a later flush; until then it costs no task."""

        def respond(status: int, fields: Fields, body: bytes) -> None:
            if exchange.is_cut:
                return
            completed = self._completed(fields, exchange.scope)
            if len(body) <= PIECE_BYTES:
                exchange.respond(status, completed, body)
                return
            sending = asyncio.create_task(_send_in_pieces(exchange, status, completed, body))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

        if exchange.body:
            return False
        scope, subject = exchange.scope, None
        if self._access is not None:
            subject = _subject(self._access, scope)
            if subject is None:
                return False
        return stream.answer_at_once(self._gateway, scope, subject, respond, exchange.while_waiting)

    def _completed(self, fields: Fields, scope: Scope) -> Fields:
        """Return the fields of an answer with those that middleware adds."""
        if self._has_origins:  # an answer to another page would have more
            given = dict(fields).get(b"vary")
            vary = b"Origin" if given is None else given + b", Origin"
            fields = [(name, vary if name == b"vary" else value) for name, value in fields]
            fields += [] if given is not None else [(b"vary", vary)]
        return self._fields.completed(fields, scope["scheme"])


async def _send_in_pieces(exchange: Exchange, status: int, fields: Fields, body: bytes) -> None:
    """Write a long answer as fast as the peer takes it."""
    await exchange.send({"type": "http.response.start", "status": status, "headers": fields})
    left = len(body)
    for piece in body_pieces(body):
        left -= len(piece)
        await exchange.send({"type": "http.response.body", "body": piece, "more_body": left > 0})


def _subject(access: Access, scope: Scope) -> Subject | None:
    """Return the subject of the one bearer token of a request; None where the guard has to say.

    Raises:
        Refused: the token proves nothing.
    """
    tokens = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(tokens) != 1 or not tokens[0].startswith(BEARER):
        return None
    return access.known_subject(tokens[0].removeprefix(BEARER).strip().decode("latin-1"))


class DirectRoutes:
    """The innermost middleware: hands these kinds of requests to their routes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._routes = {
            kind: next(
                route
                for route in router.routes
                if isinstance(route, APIRoute)
                and kind[0] in (route.methods or ())
                and route.path.encode().endswith(kind[1])
            )
            for kind, router in (
                (PUBLISH, messages.router),
                (SUBSCRIBE, subscribe.router),
                (POLL, stream.router),
            )
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the route answer, or the application.

        Raises:
            Refusal: as the route.
        """
        is_http = scope["type"] == "http"
        kind = kind_at(scope["method"], raw_path(scope)) if is_http else None
        if kind is None:
            await self.app(scope, receive, send)
            return
        route = self._routes[kind]
        # What routing would say, for the log of requests and the watchdog.
        scope["route"] = route
        scope["path_params"] = {"topic": scope["path"].split("/")[_SLASHES - 1]}
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)
