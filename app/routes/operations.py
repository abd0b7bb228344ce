"""Health, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.connection import figures_of
from app.gateway import gateway_of
from app.inner_call import MARK
from app.metrics.crew import check_crew, of_all
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
    """Counters that reconcile; looking changes nothing of what is sent. Of all workers, if several.

    A worker that is asked by another one answers for itself.
    """
    gateway = gateway_of(request)
    is_inner = MARK in request.scope
    headers = check_crew(gateway.crew, request.scope["query_string"]) if is_inner else {}
    text = await exposition(gateway, figures_of(request.scope))
    if gateway.crew is not None and not is_inner:
        text = await of_all(gateway, gateway.crew, text)
    return Response(text, headers=headers, media_type=CONTENT_TYPE)
