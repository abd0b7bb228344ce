"""A service with an embedded topic under uvicorn, which publishes to itself.

python -m bench.servers.embedded MESSAGES_A_SECOND
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.servers.load import OPENING
from tidegate.embed import ConflatedTopic

BATCHES_A_SECOND = 100
KEYS = 100

prices = ConflatedTopic(key=["/tickerId"], name="bench")


def batches(messages: int) -> list[list[bytes]]:
    """Return a second of messages of 100 keys, in batches."""
    texts = [
        b'{"tickerId":%d,"price":%d.25,"size":100}' % (it % KEYS, it) for it in range(messages)
    ]
    size = messages // BATCHES_A_SECOND
    return [texts[start : start + size] for start in range(0, messages, size)]


async def publish(messages: int) -> None:
    """Publish so many messages a second, until cancelled."""
    loop = asyncio.get_running_loop()
    second, due_s = batches(messages), loop.time()
    while True:
        for batch in second:
            due_s += 1 / BATCHES_A_SECOND
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await prices.publish(*batch)


async def stream(request: Request) -> Response:
    """Answer a subscriber as a gateway does."""
    asked = request.query_params
    return prices.response(request, asked["options"], command=asked["command"])


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Publish while the application runs."""
    publishing = asyncio.create_task(publish(int(sys.argv[1])))
    yield
    publishing.cancel()


def main() -> None:
    """Serve on a free port, and say which."""
    app = Starlette(routes=[Route("/v1/topics/bench/subscribe", stream)], lifespan=lifespan)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2 * OPENING)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])


if __name__ == "__main__":
    main()
