"""`/v1/sessions/{session}/subscriptions`: what a session is subscribed to, while it runs."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.openapi import described
from app.posted import CHANGES, JSON, posted_body
from app.problems import Problem
from app.query import query_values, subscription_name
from app.routes.sessions import SESSION, json_answer, live_session_of, seek
from app.sessions.documents import change_of, target_of
from app.sessions.session import Session
from app.sessions.view import answer, subscription_view, subscription_views

SUBSCRIPTION = {**SESSION, "sub": "Name of the subscription in its session"}

router = APIRouter(tags=["sessions"])


@router.post(
    "/v1/sessions/{session}/subscriptions",
    status_code=201,
    summary="Add a subscription to a session",
    openapi_extra=described(path=SESSION, body=[JSON]),
)
async def add_subscription(request: Request) -> Response:
    """201 with what was granted; a stream that is there is told `subscribed`."""
    body = await posted_body(request)
    session = live_session_of(request)
    target = target_of(body, _characters_max(session))
    if session.cursor is None or session.pattern:
        detail = "The session of a plain GET has one subscription; open one with POST for more."
        raise Problem("options-invalid", detail)
    await seek(session.gateway, target)
    asked, warnings = live_session_of(request).subscribe(target.topic, target.wish)
    location = f"/v1/sessions/{session.id}/subscriptions/{asked.name}"
    return json_answer(answer(asked, warnings), 201, {"Location": location})


@router.get(
    "/v1/sessions/{session}/subscriptions",
    summary="What a session is subscribed to",
    openapi_extra=described(path=SESSION),
)
async def list_subscriptions(request: Request) -> Response:
    """`{"subscriptions": [...]}`, with what they came to so far."""
    query_values(request.scope, {})
    return json_answer({"subscriptions": subscription_views(live_session_of(request))}, 200)


@router.get(
    "/v1/sessions/{session}/subscriptions/{sub}",
    summary="A subscription and what it came to",
    openapi_extra=described(path=SUBSCRIPTION),
)
async def get_subscription(request: Request) -> Response:
    """What was granted, and the figures."""
    query_values(request.scope, {})
    session = live_session_of(request)
    asked = session.subscription(subscription_name(request.scope))
    return json_answer(subscription_view(session, asked), 200)


@router.patch(
    "/v1/sessions/{session}/subscriptions/{sub}",
    summary="Change a subscription while it runs",
    openapi_extra=described(path=SUBSCRIPTION, body=CHANGES),
)
async def patch_subscription(request: Request) -> Response:
    """200 with what is granted then; a change that is refused changes nothing."""
    body = await posted_body(request, CHANGES)
    session = live_session_of(request)
    asked = session.subscription(subscription_name(request.scope))
    change = change_of(body, _characters_max(session))
    wish = asked.wish.changed(change.options, change.filter_text, change.order_text)
    warnings = session.change(asked.name, wish, paused=change.paused)
    return json_answer(answer(asked, warnings), 200)


@router.delete(
    "/v1/sessions/{session}/subscriptions/{sub}",
    status_code=204,
    summary="End a subscription",
    openapi_extra=described(path=SUBSCRIPTION),
)
async def delete_subscription(request: Request) -> Response:
    """204; a stream that is there is told `unsubscribed`."""
    query_values(request.scope, {})
    session = live_session_of(request)
    session.unsubscribe(subscription_name(request.scope))
    return Response(status_code=204)


def _characters_max(session: Session) -> int:
    return session.gateway.settings.options_characters_max
