"""`/v1/sessions/{session}/subscriptions/{sub}/trace`: what is decided for one subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from sse_starlette import EventSourceResponse

from app.gateway import Gateway, gateway_of
from app.openapi import described
from app.problems import Problem
from app.query import query_values, require_accept, subscription_name
from app.routes.sessions import RETRY_AFTER, live_session_of
from app.routes.subscribe import STREAM
from app.routes.subscriptions import SUBSCRIPTION
from app.sse import event
from app.trace_stream import TraceStream
from conflation.errors import LimitReached, SessionUnknown
from conflation.sessions.session import Seat

AWAY = "AWAY"

router = APIRouter(tags=["operations"])


@router.get(
    "/v1/sessions/{session}/subscriptions/{sub}/trace",
    summary="Every decision that is taken for a subscription, as server-sent events",
    responses=STREAM,
    openapi_extra=described(
        path=SUBSCRIPTION, query={"topic": "Which topic, where the subscription is to a pattern"}
    ),
)
async def trace(request: Request) -> Response:
    """`call`, `decision` and at last `end`; from now on until the subscription ends."""
    require_accept(request.scope, "text/event-stream")
    wanted = query_values(request.scope, {"topic": "topic-invalid"}).get("topic")
    session = live_session_of(request)
    asked = session.subscription(subscription_name(request.scope))
    topics = [topic for topic in asked.topics if wanted in (None, topic)]
    if len(topics) != 1:
        raise Problem("topic-unknown", "Say with ?topic= which topic of the subscription is meant.")
    gateway = gateway_of(request)
    seat = _seat(gateway, session.id, asked.name, topics[0])
    if seat is None:
        return EventSourceResponse(_nothing(), ping=0, sep="\n")
    try:
        return TraceStream(gateway, seat)
    except LimitReached as error:
        raise Problem("limit-reached", f"{error.detail}.", headers=RETRY_AFTER) from error


def _seat(gateway: Gateway, session: str, name: str, topic: str) -> Seat | None:
    """None while nobody reads the session, and once a query has told its rows."""
    try:
        return gateway.driver.engine.seat(session, (name, topic))
    except SessionUnknown:
        return None


async def _nothing() -> AsyncIterator[bytes]:
    """Nothing is decided for a subscription that has no seat."""
    yield event("end", {"at_ms": 0, "reason": AWAY})
