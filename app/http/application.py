"""The application: routes, problem handlers and the gateway, assembled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint
from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from starlette.responses import FileResponse, HTMLResponse

from tidegate import HOME, __version__
from tidegate.app.access.audit import Kind
from tidegate.app.gateway import Gateway
from tidegate.app.http.audited import Audited
from tidegate.app.http.hot_path import DirectRoutes, HotPath
from tidegate.app.http.internal_call import perform
from tidegate.app.http.middleware import install_middleware
from tidegate.app.http.openapi import Api
from tidegate.app.http.routes import (
    access as access_routes,
)
from tidegate.app.http.routes import (
    explain,
    login,
    messages,
    operations,
    polled,
    sessions,
    sow,
    stream,
    subscribe,
    subscriptions,
    topics,
    trace,
)
from tidegate.app.http.routes.models import COMPONENTS
from tidegate.app.http.routes.subscribe_plan import SubscribePlans
from tidegate.app.metrics.history import History
from tidegate.app.settings.settings import Settings
from tidegate.app.timers import wall_ms
from tidegate.app.topics.system_topics import RevokedTopic
from tidegate.keys.text.duration import Instant

if TYPE_CHECKING:
    from tidegate.app.access.access import Access
    from tidegate.app.cluster.connection import BusConnection

STATIC = Path(__file__).parents[1] / "static"
CLIENT = HOME / "tidegate" / "clients" / "js"
"""The client for pages: its source is served unbuilt."""
SWAGGER = ("fastapi_offline", "static")
"""Swagger UI in files; FastAPI's own page loads them from another host."""
ROUTES = (
    topics, messages, sow, stream, polled, subscribe, sessions, subscriptions, trace, explain,
    access_routes, login, operations,
)  # fmt: skip


def create_app(
    settings: Settings,
    *,
    bus: BusConnection | None = None,
    clock: Callable[[], Instant] = time.monotonic_ns,
    wall_ms: Callable[[], int] = wall_ms,
) -> FastAPI:
    """Build the gateway as an ASGI application; `app.state.gateway` is the gateway.

    Args:
        settings: the settings of the gateway.
        bus: the connection for sharing sessions, instead of that from settings; the caller closes
            it.
        clock: monotonic nanoseconds, in step with the event loop's clock.
        wall_ms: the wall clock, in milliseconds since 1970.

    The server calls `app.state.gateway.say_goodbye()` when a shutdown begins: ASGI's own shutdown
    comes only after the streams have ended.
    """
    gateway = Gateway.build(settings, clock=clock, wall_ms=wall_ms)
    history = History(gateway.catalog, gateway.driver)
    access = _access(settings, gateway)
    if access is not None:
        access.on_change = lambda what, detail: gateway.audit.act(Kind(what, detail=detail))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await gateway.open()
        await checkpoint()  # imports anyio's backend, or the first streamed response took 60 ms
        async with (
            history.kept(),
            contextlib.nullcontext()
            if access is None
            else access.watching(gateway.sessions.end_unentitled),
        ):
            yield
        await gateway.aclose()

    app = Api(
        title="Tidegate",
        version=__version__,
        lifespan=lifespan,
        # A redirect would lose the body of a publish, and every path has one spelling.
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    app.components = COMPONENTS
    app.state.gateway, app.state.access, app.state.history = gateway, access, history
    app.state.plans = SubscribePlans()
    if not settings.log_requests:  # each has its line of the log, which the application writes
        app.state.hot_path = HotPath(gateway, access, app.state.plans)
    for module in ROUTES:
        # As they are: to include a router analyzes each of its routes a second time, in 60 ms.
        app.router.routes.extend(module.router.routes)
    if (STATIC / "index.html").is_file():
        _add_pages(app)
    _add_layers(app, settings, access, bus)
    return app


def _add_layers(
    app: FastAPI, settings: Settings, access: Access | None, bus: BusConnection | None
) -> None:
    """Add the middleware around the routes, innermost first."""
    gateway: Gateway = app.state.gateway
    app.add_middleware(DirectRoutes)
    if access is not None:
        from tidegate.app.http.guard import Guard, OwnerGuard

        sessions = gateway.sessions
        # Inside ForwardToOwner, which adopts sessions that other gateways left.
        app.add_middleware(OwnerGuard, owner_of=sessions.owner_of, topics_of=sessions.topics_of)
    shared = bus or (None if gateway.bus is None else gateway.bus.connection)
    if shared is not None:
        from tidegate.app.cluster.peers import TICKET
        from tidegate.app.http.forwarding import ForwardToOwner  # redis is optional

        # Calls of other gateways pass the same middleware as requests.
        peers = gateway.share_sessions(shared, partial(perform, app))
        app.add_middleware(ForwardToOwner, peers=peers)
        if access is not None:
            ask = partial(peers.ask, TICKET)
            peers.serve(TICKET, access.share_tickets(peers.gateway, ask))
    if access is not None:
        # Outside ForwardToOwner: without a valid token no other gateway is asked.
        app.add_middleware(Guard, access=access)
    install_middleware(app, settings)
    app.add_middleware(Audited, log=gateway.audit)


def _access(settings: Settings, gateway: Gateway) -> Access | None:
    """Read keys and policy, if settings name keys; without them its modules are not loaded.

    Raises:
        SettingsInvalid: they cannot be used.
    """
    if settings.auth_keys is None:
        return None
    from tidegate.app.access.access import Access
    from tidegate.app.access.revocations import Revocations

    topic = RevokedTopic(gateway.catalog, gateway.writer, gateway.leadership)
    revocations = Revocations(gateway.driver.engine, topic.publish, topic.remove)
    return Access(settings, revocations=revocations, clock=gateway.driver.wall_ms)


def _add_pages(app: FastAPI) -> None:
    """Serve the pages, and the JavaScript client that they use."""
    app.add_api_route("/", first_page, include_in_schema=False)
    app.add_api_route("/console", console, include_in_schema=False)
    app.add_api_route("/docs", reference, include_in_schema=False)
    # Before /static, which would take its path.
    app.mount("/static/swagger", StaticFiles(packages=[SWAGGER]))
    app.mount("/static/vendor", Vendored(directory=STATIC / "vendor"))
    app.mount("/static", StaticFiles(directory=STATIC))
    app.add_api_route("/client.js", client, include_in_schema=False)
    app.mount("/client/adapters", StaticFiles(directory=CLIENT / "adapters"))
    app.mount("/client", StaticFiles(directory=CLIENT / "client"))


class Vendored(StaticFiles):
    """Files of others, each in a folder named for its version, so that a browser may keep them."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        """Return the file, which never changes under its name."""
        found = super().file_response(*args, **more)
        found.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return found


async def first_page(request: Request) -> Response:
    """Return the first page, which shows one topic."""
    return _asking(request, STATIC / "index.html")


async def console(request: Request) -> Response:
    """Return the console's page."""
    return _asking(request, STATIC / "console" / "index.html")


def _asking(request: Request, path: Path) -> Response:
    """Return a page with the way in which the gateway authenticates its users."""
    page = path.read_text()
    if (access := request.app.state.access) is not None:
        # In the page, as a request that only finds out would be an error in the browser's log.
        way = "token" if access.provider is None else "provider"
        page = page.replace('data-sign-in="off"', f'data-sign-in="{way}"', 1)
    return HTMLResponse(page)


async def reference() -> Response:
    """Return the page that shows the HTTP API in Swagger UI, read from /openapi.json."""
    return FileResponse(STATIC / "reference.html")


async def client() -> Response:
    """Return the first module of the JavaScript client."""
    return FileResponse(CLIENT / "client.js", media_type="text/javascript")
