"""Health, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.connection import figures_of
from app.gateway import gateway_of
from app.metrics.exposition import CONTENT_TYPE, exposition
from app.problems import Problem

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Alive")
async def healthz() -> dict[str, str]:
    """200 as long as the process answers."""
    return {"status": "alive"}


@router.get("/readyz", summary="Ready")
async def readyz(request: Request) -> dict[str, str]:
    """200 once the store has answered; 503 before, while the bus is out, and during a shutdown."""
    gateway = gateway_of(request)
    if not gateway.ready:
        reason = "it is shutting down" if gateway.stopping else "the store has not answered yet"
        raise Problem("not-ready", f"The gateway is not ready: {reason}.")
    if gateway.outage.is_on:
        raise Problem("not-ready", f"The gateway is not ready: the {gateway.outage.source} is out.")
    return {"status": "ready"}


@router.get("/metrics", summary="Prometheus metrics")
async def metrics(request: Request) -> Response:
    """Counters that reconcile; looking changes nothing of what is sent."""
    text = await exposition(gateway_of(request), figures_of(request.scope))
    return Response(text, media_type=CONTENT_TYPE)
