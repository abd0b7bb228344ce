"""Puts the outer layers around the application, in the one order that works."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app.http.logs import event
from tidegate.app.http.names import topic_or_pattern
from tidegate.app.http.problems import HeadAsGet, Problem, install
from tidegate.app.http.requests import TOPICS_PATH, raw_path, topic_name
from tidegate.app.settings import Settings

# A browser sends some requests of any page to any address without asking first: a page of another
# site could publish text to a topic on this machine. The browser names the page's origin with
# them, and that is checked.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def check_origin(scope: Scope, allowed: frozenset[str]) -> None:
    """Refuse changes by pages of another origin; clients other than browsers send none.

    Args:
        scope: of a request whose Host is one of ours.
        allowed: origins beside the one that Host names, such as `https://desk.example`.

    Raises:
        Problem: origin-not-allowed.
    """
    if scope["method"] in SAFE_METHODS:
        return
    origins = _values(scope, b"origin")
    if any(origin not in allowed and not _is_own(scope, origin) for origin in origins):
        raise Problem("origin-not-allowed", "A page of another origin may not change anything.")
    if not origins and "cross-site" in _values(scope, b"sec-fetch-site"):
        raise Problem("origin-not-allowed", "A page of another site may not change anything.")


def _is_own(scope: Scope, origin: str) -> bool:
    """Return True for our own origin; a proxy before us may have terminated TLS."""
    scheme, _, authority = origin.partition("://")
    if scheme not in DEFAULT_PORTS:
        return False
    default_port = DEFAULT_PORTS[scheme]
    [host] = _values(scope, b"host")
    return authority.removesuffix(default_port) == host.removesuffix(default_port)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key == name]


# The middleware is pure ASGI: pieces of a stream pass through at once.
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
API_POLICY = b"default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class SecurityHeaders:
    """Adds the protective headers that a route did not set itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app with a `send` that completes the answer's header."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _completed(message.get("headers", []))}
            await send(message)

        await self.app(scope, receive, guarded_send)


class RequestChecks:
    """Refuses a foreign Host, other sites' writes and paths with tricks before any route."""

    def __init__(
        self,
        app: ASGIApp,
        is_host_allowed: Callable[[str], bool],
        allowed_origins: tuple[str, ...],
    ) -> None:
        self.app = app
        self.is_host_allowed = is_host_allowed
        self.allowed_origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app for a request that may be routed.

        Raises:
            Problem: host-not-allowed, origin-not-allowed, topic-invalid or not-found.
        """
        if scope["type"] == "http":
            self._check_host(scope)
            check_origin(scope, self.allowed_origins)
            check_path(scope)
        await self.app(scope, receive, send)

    def _check_host(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise Problem("host-not-allowed", "A request has one Host header.", status=400)
        if not self.is_host_allowed(hosts[0].decode("latin-1")):
            raise Problem("host-not-allowed", "The gateway does not answer to this host name.")


def check_path(scope: Scope) -> None:
    """Refuse what decoding would send to another route than the one that was written.

    Raises:
        Problem: topic-invalid for a name that is none, not-found for other encoded paths.
    """
    path = raw_path(scope)
    if path.startswith(TOPICS_PATH):
        rest = path.removeprefix(TOPICS_PATH).split(b"/")[1:]
        if rest == [b"subscribe"]:
            topic_or_pattern(scope)
        else:
            topic_name(scope)
        # Only a record's key is text of any kind.
        if b"%" in b"/".join(rest) and rest[0] != b"sow":
            raise Problem("not-found", "There is nothing under this path.")
    elif b"%" in path:
        raise Problem("not-found", "There is nothing under this path.")


def host_rule(allowed: tuple[str, ...]) -> Callable[[str], bool]:
    """Return the rule for a Host header: loopback names and `allowed`, with any port or none."""
    names = LOOPBACK_NAMES | set(allowed) | {f"[{name}]" for name in allowed if ":" in name}

    def is_host_allowed(host: str) -> bool:
        name, colon, port = host.lower().rpartition(":")
        if not colon or host.endswith("]"):  # no port; the colons are inside the brackets
            return host.lower() in names
        return name in names and port.isascii() and port.isdecimal()

    return is_host_allowed


def _completed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    present = {name.lower() for name, _ in headers}
    media_type = next((value for name, value in headers if name.lower() == b"content-type"), b"")
    policy = PAGE_POLICY if media_type.startswith(b"text/html") else API_POLICY
    missing = [pair for pair in SECURITY_HEADERS if pair[0] not in present]
    if b"content-security-policy" not in present:
        missing.append((b"content-security-policy", policy))
    return [*headers, *missing]


# The line has the route and not the path: paths hold ids of sessions and keys of records. Queries,
# headers and bodies are left out. The line of a stream is logged when it ends. Requests that the
# server refuses before routing are not logged; /metrics counts them.


logger = logging.getLogger("tidegate.requests")

LINE_EXTENSION = "tidegate.access-line"
CUT = 0
"""The status of a request that ended without an answer."""


class AccessLog:
    """Logs a `request` event for each request; the outermost middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, and log its status and duration."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        line = scope.setdefault("extensions", {})[LINE_EXTENSION] = AccessLine(scope)

        async def counted_send(message: Message) -> None:
            line.status = message.get("status", line.status)
            line.sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, counted_send)
        finally:
            if not line.is_deferred:
                line.write()


class AccessLine:
    """What the log says of one request, from its beginning to its end.

    `is_deferred`: the answer goes on after the application has returned; whoever writes it writes
    the line.
    """

    def __init__(self, scope: Scope) -> None:
        self.is_deferred = False
        self.status = CUT
        self.sent_bytes = 0
        self._scope = scope
        self._began_s = time.monotonic()

    def defer(self) -> Callable[[int], None]:
        """Return what writes the line at the answer's end; it is given the bytes that were sent."""
        self.is_deferred = True
        # Of the request only this is kept: the rest is many times the memory of an idle stream.
        kept = ("method", "route", "path_params", "client")
        self._scope = {name: self._scope[name] for name in kept if name in self._scope}

        def ended(sent_bytes: int) -> None:
            self.sent_bytes += sent_bytes
            self.write()

        return ended

    def write(self) -> None:
        """Log the request."""
        _log(self._scope, self.status, self.sent_bytes, time.monotonic() - self._began_s)


def logged_when_over(scope: Scope) -> Callable[[int], None]:
    """Leave the log's line of a request to the end of its stream; return what writes it then."""
    line: AccessLine | None = scope.get("extensions", {}).get(LINE_EXTENSION)
    return _not_logged if line is None else line.defer()


def _not_logged(sent_bytes: int) -> None:
    """Write no line: requests are not logged."""


def _log(scope: Scope, status: int, sent_bytes: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "")
    figures = {
        "method": scope["method"],
        "route": route or None,
        "topic": scope.get("path_params", {}).get("topic"),
        "status": status,
        "bytes": sent_bytes,
        "duration_ms": round(seconds * 1_000, 3),
        "client": (scope.get("client") or ("",))[0],
    }
    logger.info(
        "%s %s %d in %.1f ms",
        scope["method"], route or "no route", status, figures["duration_ms"],
        extra=event("request", **figures),
    )  # fmt: skip


WILDCARDS = frozenset({"0.0.0.0", "::"})


def install_middleware(app: FastAPI, settings: Settings) -> None:
    """Install the middleware; call it after every route and all other middleware.

    From the outside in: access log if configured, security headers, problems for exceptions, checks
    of Host, origin and path, HEAD as GET, then the application's own.
    """
    app.add_middleware(HeadAsGet)
    app.add_middleware(
        RequestChecks,
        is_host_allowed=host_rule(_host_names(settings)),
        allowed_origins=settings.allowed_origins,
    )
    install(app)
    app.add_middleware(SecurityHeaders)
    if settings.log_requests:
        app.add_middleware(AccessLog)


def _host_names(settings: Settings) -> tuple[str, ...]:
    """Return the names that Host may have: those configured, and the listening address.

    A wildcard address does not count: a page of another site could name it to reach this machine.
    """
    own = () if settings.host in WILDCARDS else (settings.host.lower(),)
    return (*settings.allowed_hosts, *own)
