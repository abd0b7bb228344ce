"""`/v1/explain`: what subscribing would do, without doing it."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request

from app.explain import explained
from app.gateway import gateway_of
from app.openapi import described
from app.posted import JSON, posted_texts
from app.problems import Problem
from app.query import checked_topic_name

PARAMETERS: Mapping[str, str] = {
    "topic": "topic-invalid",
    "options": "options-invalid",
    "filter": "filter-invalid",
    "order_by": "options-invalid",
    "command": "options-invalid",
    "format": "options-invalid",
}

router = APIRouter(tags=["subscribing"])


@router.post(
    "/v1/explain",
    summary="What subscribing would do: options as granted, lane, resume mode, estimates",
    openapi_extra=described(path={}, body=[JSON]),
)
async def explain(request: Request) -> dict[str, object]:
    """The parameters of a subscription and its `topic`, as a JSON object of texts."""
    values = await posted_texts(request, PARAMETERS)
    if "topic" not in values:
        raise Problem("topic-invalid", "topic is missing: it names the topic.", pointer="/topic")
    name = checked_topic_name(values.pop("topic"))
    gateway = gateway_of(request)
    await gateway.catalog.seek(name)
    return await explained(gateway, name, values)
