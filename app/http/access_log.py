"""The access log: one event for each request.

The line has the route and not the path: paths hold ids of sessions and keys of records. Queries,
headers and bodies are left out. The line of a stream is logged when it ends. Requests that the
server refuses before routing are not logged; of these, /metrics counts those for want of room.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.app.logs import event

request_log = logging.getLogger("tidegate.requests")

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
    """The access log's line of one request, from its beginning to its end.

    `is_deferred`: the answer continues after the application has returned; its writer writes the
    line.
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
        # Only this of the request is kept: the rest is many times the memory of an idle stream.
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
    return not_logged if line is None else line.defer()


def not_logged(sent_bytes: int) -> None:
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
    request_log.info(
        "%s %s %d in %.1f ms",
        scope["method"],
        route or "no route",
        status,
        figures["duration_ms"],
        extra=event("request", **figures),
    )
