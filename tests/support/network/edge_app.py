"""A small application that shows the edge: echo, an endless stream, a stream that says goodbye.

Run as a program it is a whole gateway process without an engine, which prints its address.
"""

import asyncio
import sys
from collections.abc import Mapping

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.app.cli.settings import load_settings
from tidegate.app.http.middleware import install_middleware
from tidegate.app.http.requests import read_body
from tidegate.app.http.scope import connection_of
from tidegate.app.http.server import serve
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings

PIECE = b"x" * 1000
BODY_BYTES_MAX = 1 << 20


class Streams:
    """The application's streams, which end together when told to."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.cut = asyncio.Event()
        self.stalled_at_bytes: int | None = None
        self.unsent_bytes = 0
        self.write_buffer_bytes = 0
        self.disconnects = 0

    def say_goodbye(self) -> None:
        self.ending.set()

    async def calm(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One piece, then silence until the goodbye or the client's leaving."""
        await _start(send)
        await send(_piece(b"hello\n"))
        leaving = asyncio.create_task(self._disconnected(receive))
        ending = asyncio.create_task(self.ending.wait())
        await asyncio.wait({leaving, ending}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        ending.cancel()
        if self.ending.is_set():
            await send(_piece(b"goodbye\n"))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def flood(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pieces as fast as they are taken; a client that takes none for a moment is cut."""
        await _start(send)
        connection = connection_of(scope)
        assert connection is not None
        sent_bytes = 0
        while not connection.is_closing:
            try:
                await asyncio.wait_for(send(_piece(PIECE)), timeout=0.3)
            except TimeoutError:
                self.stalled_at_bytes = sent_bytes
                self.unsent_bytes = connection.unsent_bytes
                self.write_buffer_bytes = connection.write_buffer_bytes
                connection.abort()
                self.cut.set()
                return
            sent_bytes += len(PIECE)
            await asyncio.sleep(0)

    async def frozen(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pieces for ever, whether the client takes them or not: what a shutdown has to end."""
        await _start(send)
        while True:
            await send(_piece(PIECE))
            await asyncio.sleep(0)
            connection = connection_of(scope)
            if connection is None or connection.is_closing:
                return

    async def _disconnected(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnects += 1


def edge_app(settings: Settings, streams: Streams | None = None) -> FastAPI:
    """The application with the edge's layers around it."""
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    streams = streams or Streams()

    @app.get("/")
    async def root() -> Mapping[str, str]:
        return {"here": "root"}

    @app.get("/number")
    async def number(n: int) -> int:
        return n

    @app.post("/body")
    async def body(request: Request) -> Mapping[str, int]:
        return {"bytes": len(await read_body(request, BODY_BYTES_MAX))}

    @app.get("/v1/topics/{topic}")
    async def topic(topic: str) -> Mapping[str, str]:
        return {"topic": topic}

    @app.get("/v1/topics/{topic}/sow")
    async def sow(topic: str) -> Mapping[str, str]:
        return {"sow": topic}

    @app.get("/refused")
    async def refused() -> None:
        raise Refused("limit-reached", "Too many.", retry_after_s=3)

    @app.get("/broken")
    async def broken() -> None:
        raise ValueError("the secret that the client sent")

    @app.get("/page")
    async def page() -> Response:
        return Response("<p>hello</p>", media_type="text/html")

    app.mount("/calm", streams.calm)
    app.mount("/flood", streams.flood)
    app.mount("/frozen", streams.frozen)
    app.mount("/half", _half)
    install_middleware(app, settings)
    return app


async def _half(scope: Scope, receive: Receive, send: Send) -> None:
    await _start(send)
    await send(_piece(b"half of it"))
    raise ValueError("the other half")


async def _start(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


def _piece(body: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def main() -> int:
    settings = load_settings()
    streams = Streams()

    def say(address: str) -> None:
        sys.stdout.write(address + "\n")
        sys.stdout.flush()

    app = edge_app(settings, streams)
    return serve(app, settings, on_shutdown=streams.say_goodbye, on_started=say)


if __name__ == "__main__":
    sys.exit(main())
