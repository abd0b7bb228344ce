"""A gateway of scripted answers: a real uvicorn in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.deadlines import HANGS_S

Script = Callable[[Request], Response]


@dataclass
class Scripted:
    """Answers the n-th request with the n-th script, later ones with the last.

    Attributes:
        requests: the header `Last-Event-ID` and query of each request, in order.
    """

    scripts: list[Script]
    address: str = ""
    requests: list[tuple[str | None, dict[str, str]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        number = len(self.requests)
        self.requests.append((request.headers.get("last-event-id"), dict(request.query_params)))
        self.bodies.append(await request.body())
        self.headers.append(dict(request.headers))
        return self.scripts[min(number, len(self.scripts) - 1)](request)


def stream(
    *pieces: bytes,
    then_hang: threading.Event | None = None,
    apart_s: float = 0.0,
    gateway: str = "",
) -> Script:
    """An event stream of these pieces, which ends, or stays silent until the event is set.

    `gateway`: the gateway that the header `Tidegate-Gateway` names.
    """
    headers = {"Tidegate-Gateway": gateway} if gateway else {}

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
            await asyncio.sleep(apart_s)
        if then_hang is not None:
            await _until_set(then_hang)

    return lambda request: StreamingResponse(
        body(), headers=headers, media_type="text/event-stream"
    )


def broken_stream(*pieces: bytes) -> Script:
    """A stream whose connection is cut in the middle."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        raise ConnectionAbortedError("cut on purpose")

    return lambda request: StreamingResponse(body(), media_type="text/event-stream")


def plain(status: int, body: bytes = b"", media_type: str = "text/plain", **headers: str) -> Script:
    """One finished answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: Response(body, status, named, media_type)


@contextlib.contextmanager
def scripted(*scripts: Script) -> Iterator[Scripted]:
    """A running gateway of scripts; stopped at the end, open streams cut."""
    answering = Scripted(list(scripts))
    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(routes=[Route("/{path:path}", answering.answer, methods=methods)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    started = threading.Event()
    stops: list[Callable[[], object]] = []

    async def serve() -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stopping.set))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup()
        answering.address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        started.set()
        await stopping.wait()
        # uvicorn's own shutdown takes a tenth of a second and waits for streams that never end.
        server.servers[0].close()
        for connection in list(server.server_state.connections):
            transport = cast("asyncio.Transport | None", connection.transport)
            if transport is not None:
                transport.abort()
        tasks = list(server.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    try:
        assert started.wait(HANGS_S), "the scripted gateway did not start"
        yield answering
    finally:
        for stop in stops:
            stop()
        thread.join(HANGS_S)


async def _until_set(event: threading.Event) -> None:
    import anyio

    while not event.is_set():
        await anyio.sleep(0.01)
