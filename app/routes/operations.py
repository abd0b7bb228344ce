"""Health, readiness and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tidegate.app.gateway import FAULTS_SHOWN_MAX, gateway_of
from tidegate.app.http.connection import figures_of
from tidegate.app.http.internal_call import MARK
from tidegate.app.http.openapi import answer, problems, ref
from tidegate.app.http.problems import Problem
from tidegate.app.metrics.exposition import (
    CONTENT_TYPE,
    check_worker_group,
    exposition,
    merge_workers,
)
from tidegate.app.routes.models.operations import Alive, Ready
from tidegate.app.routes.sessions import json_answer

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Alive", responses={200: answer("Alive", ref(Alive)), **problems()})
async def healthz() -> Response:
    """200 as long as the process answers."""
    return json_answer({"status": "alive"}, 200)


@router.get(
    "/readyz",
    summary="Ready",
    responses={200: answer("Ready", ref(Ready)), **problems("not-ready")},
)
async def readyz(request: Request) -> Response:
    """200 where the store takes writes; 503 with the reason before, else, and during a shutdown.

    `topics`: those that cannot be used or filled while all others are served, with the reasons.
    `bus`: what stands under its keys that no gateway wrote, which is passed over.
    """
    gateway = gateway_of(request)
    reason = await gateway.unready()
    if reason is not None:
        raise Problem("not-ready", f"The gateway is not ready: {reason}.")
    state: dict[str, Any] = {"status": "ready"}
    if found := gateway.faults():
        state["topics"] = [fault._asdict() for fault in found[:FAULTS_SHOWN_MAX]]
        state["topics_at_fault"] = len(found)
    if gateway.bus is not None and (foreign := gateway.bus.connection.foreign):
        told = [f"{key}: {what}" for key, what in foreign.items()]
        state["bus"] = told[:FAULTS_SHOWN_MAX]
    return json_answer(state, 200)


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: answer("Text", content={CONTENT_TYPE: {"schema": {"type": "string"}}}),
        **problems(),
    },
)
async def metrics(request: Request) -> Response:
    """Counters that reconcile; looking changes nothing of what is sent. Of all workers, if several.

    A worker that is asked by another one answers for itself.
    """
    gateway = gateway_of(request)
    is_inner = MARK in request.scope
    headers = check_worker_group(gateway.crew, request.scope["query_string"]) if is_inner else {}
    text = await exposition(gateway, figures_of(request.scope))
    if gateway.crew is not None and not is_inner:
        text = await merge_workers(gateway, gateway.crew, text)
    return Response(text, headers=headers, media_type=CONTENT_TYPE)
