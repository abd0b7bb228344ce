"""A line for each request, if that is asked for: what was asked and how it went, and no secrets.

It has the route and not the path: paths hold sessions' ids and records' keys. Queries, headers
and bodies are left out. Of a stream the line comes when it ends. What the server refuses before a
route is looked for is not in it: /metrics counts that.
"""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.logs import event

logger = logging.getLogger("tidegate.requests")

CUT = 0
"""The status of a request that ended without an answer."""


class AccessLog:
    """Logs `request` events; stands outside of all that answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, and tell how it went."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, sent_bytes = time.monotonic(), CUT, 0

        async def counted_send(message: Message) -> None:
            nonlocal status, sent_bytes
            status = message.get("status", status)
            sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, counted_send)
        finally:
            _tell(scope, status, sent_bytes, time.monotonic() - began)


def _tell(scope: Scope, status: int, sent_bytes: int, seconds: float) -> None:
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
