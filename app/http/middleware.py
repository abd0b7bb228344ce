"""The middleware around the application, all of it pure ASGI: pieces of a stream pass at once."""

from __future__ import annotations

import http
import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app.http.access_log import AccessLog
from tidegate.app.http.problems import POLLED, STREAMS, HttpRefused, refusal_of, response_of
from tidegate.app.http.requests import (
    PATHS_MAX,
    TOPICS_PATH,
    has_ending,
    live_in,
    polled_topic_in,
    raw_path,
    target_in,
    topic_in,
)
from tidegate.app.http.scope import FOREIGN, TRANSPORT_EXTENSION
from tidegate.app.http.transport.proxies import FORWARDED, Forwarded
from tidegate.app.http.wire import (
    ANY_ORIGIN,
    EXPOSED_HEADERS,
    HEALTH_PATHS,
    Fields,
    FieldTuple,
)
from tidegate.app.refusals import Refused
from tidegate.app.settings.kinds import DEFAULT_PORTS
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.sse import EVENT_STREAM, event, jittered_retry_ms
from tidegate.keys.errors import Refusal
from tidegate.keys.text.duration import Duration

logger = logging.getLogger("tidegate.problems")

WILDCARDS = frozenset({"0.0.0.0", "::"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
API_POLICY = b"default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
SECURITY_HEADERS: FieldTuple = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    # Pages of allowed origins ask by CORS, which it does not concern.
    (b"cross-origin-resource-policy", b"same-origin"),
)
# A browser sends some requests of any page to any address without asking first: a page of another
# site could publish text to a topic on this machine. The browser names the page's origin with
# them, and that is checked.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OTHER_SITES = frozenset({"cross-site", "same-site"})
"""Values of Sec-Fetch-Site that name another origin; `same-site` is another host or port."""
SUBSCRIBER_STREAMS = ("/subscribe", "/events")
"""What pages open with EventSource; a trace is read by programs, which get the status."""
CORS_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# A list, not a mirror of what is asked for: `*` does not cover Authorization, nor any header of a
# request with credentials.
CORS_REQUEST_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match",
    "Last-Event-ID", "Tidegate-Conflate", "Tidegate-CSRF", "Tidegate-Producer",
    "Tidegate-Sequence", "Tidegate-Stage",
)  # fmt: skip


def install_middleware(app: FastAPI, settings: Settings) -> None:
    """Install the middleware; call it after every route and all other middleware.

    From the outside in: access log if configured, security headers, CORS if origins are allowed,
    problems for exceptions, checks of Host, origin and path, HEAD as GET, then the application's
    own.
    """
    app.add_middleware(HeadAsGet)
    app.add_middleware(RequestChecks, checks=Checks(settings))
    install_problems(app)
    if settings.allowed_origins:
        # Around the problems: a page may read why it was refused, too.
        app.add_middleware(Cors, allowed_origins=settings.allowed_origins)
    app.add_middleware(SecurityHeaders, hsts=settings.hsts)
    if settings.log_requests:
        app.add_middleware(AccessLog)


def _host_names(settings: Settings) -> tuple[str, ...]:
    """Return the names that Host may have: those configured, and the listening address.

    A wildcard address does not count: a page of another site could name it to reach this machine.
    """
    own = () if settings.host in WILDCARDS else (settings.host.lower(),)
    return (*settings.allowed_hosts, *own)


class ProtectiveFields:
    """The protective header fields that an answer gets if its route has not set them.

    Args:
        hsts: how long browsers that came by https use nothing else (RFC 6797).
    """

    def __init__(self, hsts: Duration | None = None) -> None:
        # Over http a browser has to ignore the field, as anybody on the path could have added it.
        self._of_https = SECURITY_HEADERS
        if hsts is not None:
            max_age = b"max-age=%d" % hsts.seconds
            self._of_https = (*SECURITY_HEADERS, (b"strict-transport-security", max_age))

    def completed(self, fields: Fields, scheme: str) -> Fields:
        """Return the fields of an answer with those that it lacks."""
        wanted = self._of_https if scheme == "https" else SECURITY_HEADERS
        return _completed(tuple(fields), wanted)


@lru_cache(maxsize=256)  # most answers have the fields of another one, such as the same flush
def _completed(fields: FieldTuple, wanted: FieldTuple) -> FieldTuple:
    # A route that sets one of them knows better: pages have a policy of their own, assets may
    # be cached.
    present = {name.lower() for name, _ in fields}
    types = (value for name, value in fields if name.lower() == b"content-type")
    policy = PAGE_POLICY if next(types, b"").startswith(b"text/html") else API_POLICY
    missing = [pair for pair in wanted if pair[0] not in present]
    if b"content-security-policy" not in present:
        missing.append((b"content-security-policy", policy))
    return (*fields, *missing)


class SecurityHeaders:
    """Adds the protective headers that a route did not set itself.

    Args:
        app: the application.
        hsts: how long browsers that came by https use nothing else (RFC 6797).
    """

    def __init__(self, app: ASGIApp, hsts: Duration | None = None) -> None:
        self.app = app
        self._fields = ProtectiveFields(hsts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app with a `send` that completes the answer's header."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = [(name, value) for name, value in message.get("headers", ())]
                headers = self._fields.completed(fields, scope["scheme"])
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, guarded_send)


class Cors(CORSMiddleware):
    """Starlette's CORS, which answers a preflight that it refuses with a problem.

    The preflight of another origin is refused here and asks no route, so the check of `Host` has
    nothing to protect.
    """

    def __init__(self, app: ASGIApp, allowed_origins: tuple[str, ...]) -> None:
        super().__init__(
            app,
            allow_origins=allowed_origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_REQUEST_HEADERS,
            # The Fetch standard forbids credentials with `*`.
            allow_credentials=ANY_ORIGIN not in allowed_origins,
            expose_headers=EXPOSED_HEADERS,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight; 403 for another origin, another method or another header."""
        answer = super().preflight_response(request_headers)
        if answer.status_code == http.HTTPStatus.OK:
            return answer
        detail = "A page of this origin may not send such a request."
        return response_of(HttpRefused("origin-not-allowed", detail, headers={"Vary": "Origin"}))


class ProblemMiddleware:
    """Answers what routes and inner middleware raise with a problem.

    After the answer has begun the connection is cut instead, so that the client sees a broken
    answer and never a complete wrong one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, and answer for it when it raises."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
            return
        except ClientDisconnect:
            return  # the client has left
        except Exception as error:
            answer = _answer_to(error, scope, has_started=has_started)
        # Below the handler, where the error is gone. A variable of this frame that named it would
        # close a ring: error, traceback, frames, and in them the request's body, for the collector.
        if has_started:
            _abort(scope)
        else:
            await answer(scope, receive, send)


def _answer_to(error: Exception, scope: Scope, *, has_started: bool) -> Response:
    """Return the answer to an exception, and log one that nobody expected."""
    problem = refusal_of(error)
    if problem.code == "internal" or has_started:
        route = getattr(scope.get("route"), "path", "no route")
        logger.error("unexpected error in %s %s", scope["method"], route, exc_info=error)
    return _response(problem, scope)


def _abort(scope: Scope) -> None:
    connection = scope.get("extensions", {}).get(TRANSPORT_EXTENSION)
    if connection is not None:  # another server has none to cut
        connection.abort()


def install_problems(app: FastAPI) -> None:
    """Answer every refusal and every error of `app` as a problem."""
    for refusal in (Refusal, HTTPException, RequestValidationError):
        app.add_exception_handler(refusal, _answer)
    app.add_middleware(ProblemMiddleware)


async def _answer(request: Request, error: Exception) -> Response:
    problem = refusal_of(error)
    if problem.code == "method-not-allowed":
        headers = {"Allow": allowed_methods(request)}
        problem = HttpRefused(problem.code, problem.detail, headers=headers)
    return _response(problem, request.scope)


def _response(problem: Refused, scope: Scope) -> Response:
    """Return a problem; one that passes is an event to whoever wants a stream of events.

    EventSource never comes back after another status than 200, and knows no `Retry-After`.
    """
    is_stream = scope["method"] == "GET" and has_ending(scope["path"], SUBSCRIBER_STREAMS)
    if not is_stream or problem.retry_after_s is None:
        return response_of(problem)
    body = event("refused", problem.document(), retry_ms=jittered_retry_ms())
    return Response(body, media_type=EVENT_STREAM)


def allowed_methods(request: Request) -> str:
    """Return the value of Allow: the methods of all routes of this path."""
    routes: Sequence[BaseRoute] = request.app.routes
    # None has the path of a file, which is mounted.
    found = {method for route in routes for method in _methods(route, request.scope)} or {"GET"}
    if "GET" in found and not has_ending(request.url.path, STREAMS):
        found.add("HEAD")
    return ", ".join(sorted(found))


def _methods(route: BaseRoute, scope: Scope) -> set[str]:
    # A partial match is the right path with another method.
    match, _ = route.matches(scope)
    return set(getattr(route, "methods", None) or ()) if match is not Match.NONE else set()


class PageFields(NamedTuple):
    """The header fields that tell where a request comes from, in lower case.

    `hosts`: of Host. `origins`: of Origin. `sites`: of Sec-Fetch-Site.
    """

    hosts: list[str]
    origins: list[str]
    sites: list[str]

    @classmethod
    def of(cls, scope: Scope) -> PageFields:
        """Return those of a request."""
        found: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"sec-fetch-site": []}
        for name, value in scope["headers"]:
            if name in found:
                found[name].append(value.decode("latin-1").lower())
        return cls(*found.values())


class Checks:
    """Refuses a foreign Host, other sites' writes and paths with tricks before any route."""

    def __init__(self, settings: Settings) -> None:
        self._is_host_allowed = host_rule(_host_names(settings))
        self._allowed_origins = frozenset(settings.allowed_origins)

    def check(self, scope: Scope) -> None:
        """Check a request by its header.

        Raises:
            Refused: host-not-allowed, origin-not-allowed, topic-invalid or not-found.
        """
        page = PageFields.of(scope)
        try:
            self._check_hosts(page.hosts, scope.get(FORWARDED))
        except Refused:
            if scope["path"] not in HEALTH_PATHS:
                raise
            # A probe, which asks by address; or a page of another site, which must learn no names.
            scope[FOREIGN] = True
        if scope["method"] not in SAFE_METHODS or _is_stream(scope):
            self._check_origin(scope, page)
        check_path(scope)

    def _check_hosts(self, hosts: list[str], said: Forwarded | None) -> None:
        if len(hosts) != 1:
            raise HttpRefused("host-not-allowed", "A request has one Host header.", status=400)
        # Both of a proxy's: a page may have written X-Forwarded-Host itself, past a proxy that
        # leaves it alone.
        named = hosts if said is None or said.host is None else [*hosts, said.host]
        if not all(map(self._is_host_allowed, named)):
            raise Refused("host-not-allowed", "The gateway does not answer to this host name.")

    def _check_origin(self, scope: Scope, page: PageFields) -> None:
        """Refuse changes and streams by pages of another origin; only browsers send one.

        A stream is a session, which a page could open without reading it, and as many as there may
        be.
        """
        allowed = self._allowed_origins
        # All of them: a second Origin header must not hide behind an allowed first one.
        for origin in () if ANY_ORIGIN in allowed else page.origins:
            if origin not in allowed and not _is_own(scope, origin, page.hosts):
                raise Refused("origin-not-allowed", OTHER_ORIGIN)
        if not page.origins and not OTHER_SITES.isdisjoint(page.sites):
            raise Refused("origin-not-allowed", "A page of another site may do nothing here.")


class RequestChecks:
    """Lets requests pass that may be routed."""

    def __init__(self, app: ASGIApp, checks: Checks) -> None:
        self.app = app
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app for a request that may be routed.

        Raises:
            Refused: as `Checks.check`.
        """
        if scope["type"] == "http":
            self._checks.check(scope)
        await self.app(scope, receive, send)


def check_path(scope: Scope) -> None:
    """Refuse what decoding would send to another route than the one that was written.

    Raises:
        Refused: topic-invalid for a name that is none, not-found for other encoded paths.
    """
    _check_path(raw_path(scope))


@lru_cache(maxsize=PATHS_MAX)
def _check_path(path: bytes) -> None:
    is_tricky = b"%" in path
    if path.startswith(TOPICS_PATH):
        rest = path.removeprefix(TOPICS_PATH).split(b"/")[1:]
        if rest == [b"subscribe"]:
            target_in(path)
        elif rest == [b"stream"]:
            polled_topic_in(path)
        else:
            topic_in(path)
        # Only a record's key is text of any kind.
        is_tricky = b"%" in b"/".join(rest) and rest[0] != b"sow"
    if is_tricky:
        raise Refused("not-found", "There is nothing under this path.")


def host_rule(allowed: tuple[str, ...]) -> Callable[[str], bool]:
    """Return the rule for a Host header: loopback names and `allowed`, with any port or none."""
    names = LOOPBACK_NAMES | set(allowed) | {f"[{name}]" for name in allowed if ":" in name}

    def is_host_allowed(host: str) -> bool:
        name, colon, port = host.lower().rpartition(":")
        if not colon or host.endswith("]"):  # no port; the colons are inside the brackets
            return host.lower().removesuffix(".") in names
        name = name.removesuffix(".")  # the absolute form of a name
        return name in names and re.fullmatch("[0-9]{1,5}", port) is not None and int(port) <= 65535

    return is_host_allowed


OTHER_ORIGIN = (
    "The page's Origin is not the Host of the request, and not in allowed_origins. A proxy has to "
    "keep the Host that the browser sent (in Vite: changeOrigin: false)."
)


def _is_stream(scope: Scope) -> bool:
    """Return True for a stream, and for a polled one while it waits or sends events."""
    path = scope["path"]
    waits = has_ending(path, POLLED) and live_in(scope["query_string"]) != ""
    return (waits or has_ending(path, STREAMS)) and scope["method"] != "OPTIONS"


def _is_own(scope: Scope, origin: str, hosts: list[str]) -> bool:
    """Return True for our own origin.

    A proxy that is not trusted may have terminated TLS, so plain HTTP here says nothing.
    """
    scheme, _, authority = origin.partition("://")
    said: Forwarded | None = scope.get(FORWARDED)
    is_known = scope["scheme"] == "https" or (said is not None and said.scheme is not None)
    if scheme not in DEFAULT_PORTS or (is_known and scheme != scope["scheme"]):
        return False
    default_port = DEFAULT_PORTS[scheme]
    if len(hosts) != 1:  # a probe of HTTP/1.0, which may have none
        return False
    host = hosts[0] if said is None or said.host is None else said.host.lower()
    return authority.removesuffix(default_port) == host.removesuffix(default_port)


class HeadAsGet:
    """Routes a HEAD like a GET; the server leaves the body out.

    Not for streams, which would open a session without a reader, nor for a polled one, which would
    wait: it has a route for HEAD.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, as GET where HEAD was asked for."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if is_head and not has_ending(scope["path"], (*STREAMS, POLLED)):
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)
