"""The application: routes, problems and the gateway, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from starlette.responses import FileResponse

from app.edge import fit
from app.gateway import Gateway
from app.inner_call import perform
from app.problems import Problem
from app.routes import (
    auto,
    commits,
    explain,
    lanes,
    messages,
    operations,
    sessions,
    sow,
    subscribe,
    subscriptions,
    topics,
    trace,
)
from app.settings import Settings
from conflation.errors import EngineError
from keys.errors import KeysError

if TYPE_CHECKING:
    from app.bus.connection import BusConnection

STATIC = Path(__file__).parent / "static"
ROUTES = (
    topics, messages, commits, sow, subscribe, sessions, subscriptions, auto, trace, explain, lanes,
    operations,
)  # fmt: skip
VERSION = "0.1.0"


def create_app(settings: Settings, *, bus: BusConnection | None = None) -> FastAPI:
    """The gateway as an ASGI application; `app.state.gateway` is its heart.

    `bus`: through which it shares sessions with other gateways, if not that of its settings; who
    made it closes it.

    Whoever serves it calls `app.state.gateway.say_goodbye()` when a shutdown begins: ASGI's own
    shutdown comes only after the streams have ended.
    """
    gateway = Gateway.build(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await gateway.open()
        yield
        await gateway.aclose()

    app = FastAPI(
        title="Tidegate",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,  # theirs loads its script from another host
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    app.state.gateway = gateway
    app.add_exception_handler(EngineError, _answer)
    app.add_exception_handler(KeysError, _answer)
    routers = [module.router for module in ROUTES]
    app.state.routes = [route for router in routers for route in router.routes]
    for router in routers:
        app.include_router(router)
    if (STATIC / "index.html").is_file():
        app.add_api_route("/", console, include_in_schema=False)
        app.add_api_route("/docs", reference, include_in_schema=False)
        app.mount("/static", StaticFiles(directory=STATIC))
    shared = bus or (None if gateway.bus is None else gateway.bus.connection)
    if shared is not None:
        _share(app, gateway, shared)
    fit(app, settings)
    return app


async def console() -> Response:
    """The first page."""
    return FileResponse(STATIC / "index.html")


async def reference() -> Response:
    """The HTTP API, read from /openapi.json."""
    return FileResponse(STATIC / "reference.html")


def _share(app: FastAPI, gateway: Gateway, bus: BusConnection) -> None:
    """Requests about sessions of other gateways are answered there, and theirs here."""
    from app.bus.elsewhere import Elsewhere
    from app.bus.neighbours import Neighbours
    from app.bus.remains import Remains

    answered = partial(perform, app)
    neighbours = Neighbours(
        bus, gateway.id, gateway.sessions, answered, gateway.settings, gateway.catalog.catch_up
    )
    neighbours.attend(
        Remains(
            neighbours.roll, neighbours.places, gateway.catalog, gateway.driver, gateway.writer,
            gateway.duty,
        )
    )  # fmt: skip
    gateway.neighbours = neighbours
    app.add_middleware(Elsewhere, neighbours=neighbours)


async def _answer(request: Request, error: Exception) -> Response:
    """What engine and keys refuse, in the words of the edge."""
    assert isinstance(error, EngineError | KeysError)
    return Problem(error.code, f"{error.detail}.", position=error.position).response()
