"""An application with an embedded topic, which tests start under servers of other people."""

from __future__ import annotations

import json
import os
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.embed import ConflatedTopic, TopicLimits

LIMITS = TopicLimits(
    write_timeout_s=1.0,
    heartbeat_s=0.5,
    journal_bytes_max=1 << 20,
    queue_bytes_max=1 << 20,
)
prices = ConflatedTopic(key=["/symbol"], name="prices", limits=LIMITS)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


async def stream(request: Request) -> Response:
    return prices.response(request, **request.query_params)


async def publish(request: Request) -> Response:
    return JSONResponse(await prices.publish(*json.loads(await request.body())))


async def state(request: Request) -> Response:
    """The readers, and the resident memory of the process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return JSONResponse({"readers": len(prices._driven._readers), "bytes": pages * PAGE_BYTES})


app = Starlette(
    routes=[
        Route("/prices", stream),
        Route("/prices", publish, methods=["POST"]),
        Route("/state", state),
    ]
)
