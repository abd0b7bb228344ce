"""`/v1/sessions/{session}/subscriptions`: what a session is subscribed to, while it runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tidegate.app.access.grants import check_reading
from tidegate.app.http.answers import json_answer
from tidegate.app.http.openapi import LOCATION, SUBSCRIBE_CODES, json_body, name_of, problems, ref
from tidegate.app.http.openapi import answer as answered
from tidegate.app.http.parameters import STRICT, SessionPath, SubscriptionPath
from tidegate.app.http.requests import CHANGES, posted_body
from tidegate.app.http.routes.models.sessions import Auto, SubscriptionFigures, Subscriptions
from tidegate.app.http.routes.models.sessions import Subscription as SubscriptionView
from tidegate.app.http.scope import gateway_of, grants_in, subject_in
from tidegate.app.refusals import Refused
from tidegate.app.streams.auto import bounds_of
from tidegate.app.streams.decisions import decided_in_turns
from tidegate.app.streams.documents import (
    SubscriptionChange,
    SubscriptionRequest,
    change_of,
    target_of,
)
from tidegate.app.streams.session import Session
from tidegate.app.streams.subscriptions import SessionSubscription
from tidegate.app.streams.view import answer, subscription_view, subscription_views
from tidegate.keys.text.duration import duration_text

router = APIRouter(tags=["sessions"], dependencies=STRICT, generate_unique_id_function=name_of)
_UNKNOWN = problems("session-unknown", "subscription-unknown")


@router.post(
    "/v1/sessions/{session}/subscriptions",
    status_code=201,
    summary="Add a subscription to a session",
    responses={
        201: answered("What was granted", ref(SubscriptionView), headers=LOCATION),
        **problems(*SUBSCRIBE_CODES, "session-unknown", "unsupported-media-type"),
    },
    openapi_extra=json_body(SubscriptionRequest),
)
async def add_subscription(request: Request, session: SessionPath) -> Response:
    """Add a subscription; 201 with the options granted, and `subscribed` on the stream."""
    body = await posted_body(request)
    found = gateway_of(request).live_session(session)
    # After the session is known: an ended one is 404, however wrong the body is.
    target = target_of(body, _characters_max(found))
    # The ids of such a stream have no room for a second topic.
    if found.cursor is None or found.pattern:
        detail = "The session of a plain GET has one subscription; open one with POST for more."
        raise Refused("options-invalid", detail)
    check_reading(grants_in(request.scope), target.topic)
    subject = subject_in(request.scope)
    await gateway_of(request).seek(target.topic, target.request.options.bookmark, by=subject)
    wanted = target.request.by(found.subject)
    decisions = await decided_in_turns(found.context, target.topic, wanted)
    # To look for topics and to decide takes time, in which the session may have ended.
    found = gateway_of(request).live_session(session)
    asked, warnings = found.subscribe(target.topic, wanted, decisions)
    location = f"/v1/sessions/{session}/subscriptions/{asked.name}"
    return json_answer(answer(asked, warnings), 201, {"Location": location})


@router.get(
    "/v1/sessions/{session}/subscriptions",
    summary="The subscriptions of a session",
    responses={200: answered("All of them", ref(Subscriptions)), **problems("session-unknown")},
)
async def list_subscriptions(request: Request, session: SessionPath) -> Response:
    """List `{"subscriptions": [...]}`, with their figures so far."""
    return json_answer(
        {"subscriptions": subscription_views(gateway_of(request).live_session(session))}
    )


@router.get(
    "/v1/sessions/{session}/subscriptions/{sub}",
    summary="A subscription and its figures",
    responses={200: answered("The subscription", ref(SubscriptionFigures)), **_UNKNOWN},
)
async def get_subscription(
    request: Request, session: SessionPath, sub: SubscriptionPath
) -> Response:
    """Return what was granted, and the figures."""
    found = gateway_of(request).live_session(session)
    asked = found.subscription(sub)
    return json_answer(subscription_view(found, asked))


@router.patch(
    "/v1/sessions/{session}/subscriptions/{sub}",
    summary="Change a subscription while it runs",
    responses={
        200: answered("What is granted then", ref(SubscriptionView)),
        **problems(
            "session-unknown",
            "subscription-unknown",
            "options-invalid",
            "filter-invalid",
            "unsupported-media-type",
        ),
    },
    openapi_extra=json_body(SubscriptionChange, CHANGES),
)
async def patch_subscription(
    request: Request, session: SessionPath, sub: SubscriptionPath
) -> Response:
    """Change a subscription; 200 with the options now granted. A refused change has no effect."""
    body = await posted_body(request, CHANGES)
    found = gateway_of(request).live_session(session)
    asked = found.subscription(sub)
    change = change_of(body, _characters_max(found))
    wanted = asked.request.changed(change.options, change.filter_text, change.order_text)
    # One call for interval, options, filter and pause: the subscription changes whole or not at
    # all.
    warnings = found.change(sub, wanted, paused=change.paused)
    # Looked up again: the first change of a plain stream gives it a subscription of its own.
    return json_answer(answer(found.subscription(sub), warnings))


@router.delete(
    "/v1/sessions/{session}/subscriptions/{sub}",
    status_code=204,
    summary="End a subscription",
    response_class=Response,
    response_description="It has ended",
    responses=_UNKNOWN,
)
async def delete_subscription(
    request: Request, session: SessionPath, sub: SubscriptionPath
) -> Response:
    """End a subscription; 204, and `unsubscribed` on the stream."""
    found = gateway_of(request).live_session(session)
    # Its queued rows are dropped or still sent, as `tidy_on_unsubscribe` of the topic says.
    found.unsubscribe(sub)
    return Response(status_code=204)


def _characters_max(session: Session) -> int:
    return session.context.settings.options_characters_max


@router.get(
    "/v1/sessions/{session}/subscriptions/{sub}/auto",
    summary="The interval of `conflation=auto`, and the last fifty decisions about it",
    responses={200: answered("Interval, bounds and decisions", ref(Auto)), **_UNKNOWN},
)
async def auto(request: Request, session: SessionPath, sub: SubscriptionPath) -> Response:
    """Return `{"sub", "interval", "min", "max", "decisions"}`, the newest decision last."""
    found = gateway_of(request).live_session(session)
    return json_answer(auto_view(found.subscription(sub)))


def auto_view(asked: SessionSubscription) -> dict[str, Any]:
    """Return where an interval stands; one that does not follow the connection has no bounds.

    A pattern whose topics have intervals of their own has none.
    """
    # Topics of a pattern follow one connection, so `auto` gives all of them one interval.
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
