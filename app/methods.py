"""Methods: HEAD is answered as GET would be, and a 405 names every method of its path."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

STREAMS = ("/subscribe", "/events", "/trace")


class HeadAsGet:
    """Gives a HEAD to the route of its GET; the server leaves the body out.

    Not for streams: a session would be opened that nobody reads.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app, as GET where HEAD was asked for."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if is_head and not scope["path"].endswith(STREAMS):
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


def allowed_methods(request: Request) -> str:
    """The value of Allow: what any route of this path takes, not only the first that fits."""
    routes: Sequence[BaseRoute] = getattr(request.app.state, "routes", request.app.routes)
    found = {method for route in routes for method in _methods(route, request.scope)}
    if "GET" in found and not request.url.path.endswith(STREAMS):
        found.add("HEAD")
    return ", ".join(sorted(found))


def _methods(route: BaseRoute, scope: Scope) -> set[str]:
    match, _ = route.matches(scope)
    return set(getattr(route, "methods", None) or ()) if match is not Match.NONE else set()
