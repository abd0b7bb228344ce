"""A proxy in front of a gateway that keeps event streams back until they end, as some proxies do.

Everything else passes: requests, refusals, and answers that end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.deadlines import HANGS_S

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
OF_THE_CONNECTION = ("content-length", "content-encoding", "transfer-encoding", "connection")
OWN = ("host", "accept-encoding")
PLAIN = [("accept-encoding", "identity")]
EVENT_STREAM = "text/event-stream"


class BufferingProxy:
    """The proxy; `address` is where clients go.

    Attributes:
        keeps_back: whether streams of events are kept back; may change at any moment.
        streams: how many have been asked for so far.
    """

    def __init__(self, target: str) -> None:
        self.address = ""
        self.keeps_back = True
        self.streams = 0
        self._http = httpx2.AsyncClient(base_url=target, timeout=HANGS_S, trust_env=False)

    async def relay(self, request: Request) -> Response:
        """Pass a request on, and its answer back."""
        sent = self._http.build_request(
            request.method,
            request.url.path,
            params=request.url.query,
            content=await request.body(),
            headers=[(k, v) for k, v in request.headers.items() if k not in OWN] + PLAIN,
        )
        answer = await self._http.send(sent, stream=True)
        headers = {k: v for k, v in answer.headers.items() if k not in OF_THE_CONNECTION}
        if not answer.headers.get("content-type", "").startswith(EVENT_STREAM):
            body = await answer.aread()
            return Response(body, answer.status_code, headers)
        self.streams += 1
        if self.keeps_back:
            return Response(await _whole(request, answer), answer.status_code, headers)
        return StreamingResponse(_pieces(answer), answer.status_code, headers)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """End the connections to the gateway with the server."""
        async with self._http:
            yield


async def _whole(request: Request, answer: httpx2.Response) -> bytes:
    """Return a stream once it has ended, or its reader has left."""
    reading = asyncio.create_task(answer.aread())
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else b""
    finally:
        for task in (reading, leaving):
            task.cancel()
        await answer.aclose()


async def _left(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.02)


async def _pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()


@contextlib.contextmanager
def buffering_proxy(target: str) -> Iterator[BufferingProxy]:
    """A proxy on a free port of loopback, in a thread of its own."""
    proxy = BufferingProxy(target)
    routes = [Route("/{path:path}", proxy.relay, methods=METHODS)]
    app = Starlette(routes=routes, lifespan=proxy.lifespan)
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with config.bind_socket() as listener:
        listener.listen()  # at once: the thread may take a while until it serves
        proxy.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.should_exit = server.force_exit = True
            thread.join(HANGS_S)
