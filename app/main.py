"""The application: routes, problem handlers and the gateway, assembled."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles
from starlette.responses import FileResponse

from tidegate import HOME, __version__
from tidegate.app.gateway import Gateway
from tidegate.app.http.internal_call import perform
from tidegate.app.http.middleware import install_middleware
from tidegate.app.http.openapi import Api
from tidegate.app.routes import (
    access as access_routes,
)
from tidegate.app.routes import (
    explain,
    messages,
    operations,
    sessions,
    sow,
    subscribe,
    subscriptions,
    topics,
    trace,
)
from tidegate.app.routes.models import COMPONENTS
from tidegate.app.settings import Settings

if TYPE_CHECKING:
    from tidegate.app.access.access import Access
    from tidegate.app.cluster.connection import BusConnection

STATIC = Path(__file__).parent / "static"
CLIENT = HOME / "tidegate" / "clients" / "js"
"""The client for pages: its source is what is served, so that no build stands between."""
SWAGGER = ("fastapi_offline", "static")
"""Swagger UI in files; FastAPI's own page loads them from another host."""
ROUTES = (
    topics, messages, sow, subscribe, sessions, subscriptions, trace, explain, access_routes,
    operations,
)  # fmt: skip


def create_app(settings: Settings, *, bus: BusConnection | None = None) -> FastAPI:
    """Build the gateway as an ASGI application; `app.state.gateway` is the gateway.

    `bus`: the connection for sharing sessions, if not that of the settings; the caller closes it.

    The server calls `app.state.gateway.say_goodbye()` when a shutdown begins: ASGI's own shutdown
    comes only after the streams have ended.
    """
    gateway = Gateway.build(settings)
    access = _access(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await gateway.open()
        async with (
            contextlib.nullcontext()
            if access is None
            else access.watching(gateway.sessions.end_unentitled)
        ):
            yield
        await gateway.aclose()

    app = Api(
        title="Tidegate",
        version=__version__,
        lifespan=lifespan,
        # A redirect would lose the body of a publish, and every path has one spelling.
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    app.components = COMPONENTS
    app.state.gateway, app.state.access = gateway, access
    app.state.plans = subscribe.Plans()
    routers = [module.router for module in ROUTES]
    app.state.routes = [route for router in routers for route in router.routes]
    for router in routers:
        app.include_router(router)
    if (STATIC / "index.html").is_file():
        _add_pages(app)
    _add_layers(app, settings, access, bus)
    return app


def _add_layers(
    app: FastAPI, settings: Settings, access: Access | None, bus: BusConnection | None
) -> None:
    """Add the layers around the routes, from the inside out."""
    gateway: Gateway = app.state.gateway
    # First of the layers, so that all others go around them.
    app.add_middleware(messages.PublishDirectly)
    app.add_middleware(subscribe.SubscribeShortcut, plans=app.state.plans)
    if access is not None:
        from tidegate.app.access.guard import Guard, OwnerGuard

        # Behind the forwarding, which adopts sessions that other gateways left.
        app.add_middleware(OwnerGuard, owner_of=gateway.sessions.owner_of)
    shared = bus or (None if gateway.bus is None else gateway.bus.connection)
    if shared is not None:
        from tidegate.app.cluster.forwarding import ForwardToOwner  # redis is optional

        # Calls of other gateways take the same way as requests, all layers included.
        peers = gateway.share_sessions(shared, partial(perform, app))
        app.add_middleware(ForwardToOwner, peers=peers)
    if access is not None:
        # Around the forwarding: nobody without a valid token asks another gateway.
        app.add_middleware(Guard, access=access)
    # Last, as each layer goes around those that are there.
    install_middleware(app, settings)


def _access(settings: Settings) -> Access | None:
    """Read keys and policy, if settings name keys; without them its modules are not loaded.

    Raises:
        SettingsInvalid: they cannot be used.
    """
    if settings.auth_keys is None:
        return None
    from tidegate.app.access.access import Access

    return Access(settings)


def _add_pages(app: FastAPI) -> None:
    """Serve the pages, and the JavaScript client that they use."""
    app.add_api_route("/", console, include_in_schema=False)
    app.add_api_route("/docs", reference, include_in_schema=False)
    # Before /static, which would take its path.
    app.mount("/static/swagger", StaticFiles(packages=[SWAGGER]))
    app.mount("/static", StaticFiles(directory=STATIC))
    app.add_api_route("/client.js", client, include_in_schema=False)
    app.mount("/client/adapters", StaticFiles(directory=CLIENT / "adapters"))
    app.mount("/client", StaticFiles(directory=CLIENT / "client"))


async def console() -> Response:
    """Return the console's page."""
    return FileResponse(STATIC / "index.html")


async def reference() -> Response:
    """Return the page that shows the HTTP API in Swagger UI, read from /openapi.json."""
    return FileResponse(STATIC / "reference.html")


async def client() -> Response:
    """Return the first module of the JavaScript client."""
    return FileResponse(CLIENT / "client.js", media_type="text/javascript")
