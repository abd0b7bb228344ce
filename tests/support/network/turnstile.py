"""A relay in front of a gateway that can hold one request: before it goes in, or with its answer.

So a process is killed at a place and not at a time: what asks is known to stand exactly there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.deadlines import HANGS_S

METHODS = ["GET", "POST", "PUT", "DELETE"]
PASSED_ON = ("content-type", "tidegate-bookmark", "retry-after")


@dataclass(eq=False)
class Hold:
    """One request that is to be held.

    Attributes:
        method, path: of the request; the path is the whole of it.
        passes: how many such requests go through before.
        answered: it is held after the gateway has done what it says, with the answer.
        saying: what its body has to have in it.
        reached: set once it stands there.
        released: set to let it go on.
    """

    method: str
    path: str
    passes: int = 0
    answered: bool = False
    saying: bytes = b""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def stops(self, request: Request, body: bytes) -> bool:
        """Whether it is this request; counts those that pass."""
        if self.reached.is_set() or (request.method, request.url.path) != (self.method, self.path):
            return False
        if self.saying not in body:
            return False
        self.passes -= 1
        return self.passes < 0

    async def wait(self) -> None:
        """Stand here until released."""
        self.reached.set()
        await self.released.wait()


class Turnstile:
    """The relay; `address` is where clients go."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self._holds: list[Hold] = []
        self._http = httpx2.AsyncClient(base_url=target, timeout=HANGS_S, trust_env=False)

    def hold(self, hold: Hold) -> Hold:
        """Hold that request; what is held already stands on."""
        self._holds.append(hold)
        return hold

    async def close(self) -> None:
        """Let go what is held, and end."""
        for hold in self._holds:
            hold.released.set()
        await self._http.aclose()

    async def relay(self, request: Request) -> Response:
        """Pass a request on and its answer back; 502 where nobody answers."""
        body = await request.body()
        held = next((hold for hold in self._holds if hold.stops(request, body)), None)
        if held is not None and not held.answered:
            await held.wait()
        try:
            answer = await self._http.request(
                request.method,
                request.url.path,
                params=dict(request.query_params),
                content=body,
                headers={k: v for k, v in request.headers.items() if k != "host"},
            )
        except (httpx2.TransportError, RuntimeError):  # nobody answers, or this is closed
            return Response(status_code=502)
        if held is not None and held.answered:
            await held.wait()
        headers = {k: v for k, v in answer.headers.items() if k in PASSED_ON}
        return Response(answer.content, answer.status_code, headers)


@asynccontextmanager
async def turnstile(target: str) -> AsyncIterator[Turnstile]:
    """A relay on a free port of loopback, in front of a gateway's address."""
    relay = Turnstile(target)
    app = Starlette(routes=[Route("/{path:path}", relay.relay, methods=METHODS)])
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with config.bind_socket() as listener:
        relay.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield relay
        finally:
            await relay.close()
            server.should_exit = server.force_exit = True
            await serving
