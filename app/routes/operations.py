"""Health, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.connection import figures_of
from app.gateway import gateway_of
from app.metrics.exposition import CONTENT_TYPE, exposition
from app.problems import Problem
from app.readiness import unready

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Alive")
async def healthz() -> dict[str, str]:
    """200 as long as the process answers."""
    return {"status": "alive"}


@router.get("/readyz", summary="Ready")
async def readyz(request: Request) -> dict[str, str]:
    """200 where the store takes writes; 503 with the reason before, else, and during a shutdown."""
    reason = await unready(gateway_of(request))
    if reason is not None:
        raise Problem("not-ready", f"The gateway is not ready: {reason}.")
    return {"status": "ready"}


@router.get("/metrics", summary="Prometheus metrics")
async def metrics(request: Request) -> Response:
    """Counters that reconcile; looking changes nothing of what is sent."""
    text = await exposition(gateway_of(request), figures_of(request.scope))
    return Response(text, media_type=CONTENT_TYPE)
