"""The real server, protocol and listener inside the test's own event loop, on a free port."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import ASGIApp

from tests.support.clocks.jumping_loop import JumpingLoop
from tests.support.network.memory import MemoryListener
from tidegate.app.http.server import OnShutdown, Server
from tidegate.app.http.transport.listener import open_listener
from tidegate.app.settings.settings import Settings


@contextlib.asynccontextmanager
async def running(
    app: ASGIApp, settings: Settings | None = None, *, on_shutdown: OnShutdown | None = None
) -> AsyncIterator[Server]:
    """A started server, whose `address` is its base URL; stopped at the end."""
    settings = settings or edge_settings()
    started = asyncio.Event()
    server = Server(
        app,
        settings,
        on_shutdown=on_shutdown,
        on_started=lambda _: started.set(),
        takes_signals=False,
    )
    with listener_for(settings) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        first = asyncio.create_task(started.wait())
        await asyncio.wait({serving, first}, return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        if serving.done():
            await serving  # raises what kept it from starting
        try:
            yield server
        finally:
            server.stop()
            await serving


def listener_for(settings: Settings) -> socket.socket:
    """A listener within the process where the loop's clock jumps, else one of TCP."""
    if isinstance(asyncio.get_running_loop(), JumpingLoop):
        return MemoryListener(settings.host)
    return open_listener(settings)


@contextlib.asynccontextmanager
async def running_server(
    app: ASGIApp, settings: Settings | None = None, *, on_shutdown: OnShutdown | None = None
) -> AsyncIterator[str]:
    """The base URL of a running server."""
    async with running(app, settings, on_shutdown=on_shutdown) as server:
        yield server.address


def edge_settings(**given: Any) -> Settings:
    """Settings for tests: a free port, nothing kept, a short farewell."""
    return Settings(**{"port": 0, "data": ":memory:", "shutdown_grace": "200ms", **given})
