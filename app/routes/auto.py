"""`/v1/sessions/{session}/subscriptions/{sub}/auto`: how an interval follows its connection."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from app.auto import bounds_of
from app.openapi import described
from app.query import query_values, subscription_name
from app.routes.sessions import json_answer, live_session_of
from app.routes.subscriptions import SUBSCRIPTION
from app.sessions.asked import Asked
from conflation.duration import duration_text

router = APIRouter(tags=["sessions"])


@router.get(
    "/v1/sessions/{session}/subscriptions/{sub}/auto",
    summary="The interval of `conflation=auto`, and the last fifty decisions about it",
    openapi_extra=described(path=SUBSCRIPTION),
)
async def auto(request: Request) -> Response:
    """`{"sub", "interval", "min", "max", "decisions"}`, the newest decision last."""
    query_values(request.scope, {})
    session = live_session_of(request)
    return json_answer(auto_view(session.subscription(subscription_name(request.scope))), 200)


def auto_view(asked: Asked) -> dict[str, Any]:
    """Where it stands; an interval that does not follow the connection has neither bounds.

    Of a pattern's topics with intervals of their own it has none.
    """
    subscriptions = [found.subscription for found in asked.topics.values()]
    bounds = bounds_of(subscriptions)
    if bounds is not None and asked.auto is not None:
        intervals = {asked.auto.state.interval_ns}
    else:
        intervals = {subscription.lane_id.interval_ns for subscription in subscriptions}
    [interval_ns] = intervals if len(intervals) == 1 else (None,)
    return {
        "sub": asked.name,
        "interval": duration_text(interval_ns) if interval_ns else None,
        "min": None if bounds is None else duration_text(bounds.min_ns),
        "max": None if bounds is None else duration_text(bounds.max_ns),
        "decisions": [] if asked.auto is None else list(asked.auto.decisions),
    }
