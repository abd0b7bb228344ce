"""`/v1/sessions`: sessions of many subscriptions, and whatever is known of those there are."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Request, Response

from app.gateway import Gateway, gateway_of
from app.inner_call import MARK, Call
from app.openapi import described
from app.posted import CHANGES, JSON, posted_body
from app.premises import Premises
from app.problems import Problem
from app.query import checked_session_id, integer, query_values, require_accept, session_id
from app.routes.subscribe import STREAM, last_event_id
from app.sessions.cursor import parse_cursor
from app.sessions.documents import Opening, Target, Tuning, opening_of, pointing, tuning_of
from app.sessions.pages import Page
from app.sessions.session import Session, check_count
from app.sessions.view import answer, session_view
from app.stream import refusal_stream, session_stream
from conflation.bookmark import Bookmark
from conflation.errors import LimitReached

PAGE_MAX = 1_000
RETRY_AFTER = {"Retry-After": "60"}
SESSION = {"session": "Id of the session"}

router = APIRouter(tags=["sessions"])


@router.post(
    "/v1/sessions",
    status_code=201,
    summary="Open a session of as many subscriptions as are wanted",
    openapi_extra=described(path={}, body=[JSON]),
)
async def open_session(request: Request) -> Response:
    """201 with the session's id and the address of its stream."""
    gateway = gateway_of(request)
    body = await posted_body(request, may_be_empty=True)
    if gateway.stopping:
        raise Problem("not-ready", "The gateway is shutting down.")
    characters_max = gateway.settings.options_characters_max
    opening = opening_of(body, gateway.driver.limits, characters_max)
    with pointing("/subscriptions"):
        check_count(len(opening.subscriptions), gateway.settings.session_subscriptions_max)
    for target in opening.subscriptions:
        await seek(gateway, target)
    session = _opened(gateway, opening)
    events = f"/v1/sessions/{session.id}/events"
    subscriptions = [answer(asked) for asked in session.asked.values()]
    document = {"session": session.id, "events": events, "subscriptions": subscriptions}
    return json_answer(document, 201, {"Location": f"/v1/sessions/{session.id}"})


@router.get(
    "/v1/sessions",
    summary="The sessions that have not ended, by id",
    openapi_extra=described(
        path={},
        query={
            "limit": "At most so many, 1 to 1,000; default 100",
            "after": "Ids behind this one",
        },
    ),
)
async def list_sessions(request: Request) -> Response:
    """`{"sessions": [...], "next": address or null}`; of all gateways where there are several.

    `missing` names those that did not answer.
    """
    gateway = gateway_of(request)
    values = query_values(request.scope, dict.fromkeys(("limit", "after"), "options-invalid"))
    limit = integer(
        values.get("limit", "100"), least=1, most=PAGE_MAX, code="options-invalid", what="limit"
    )
    after = values.get("after", "")
    behind = (
        checked_session_id(after, "options-invalid", "after is the id of a session.")
        if after
        else ""
    )
    found = gateway.sessions.listed(behind, limit + 1)
    shown = [session_view(session, whole=False) for session in found[:limit]]
    page = Page(shown, len(found) > limit)
    if gateway.neighbours is not None and MARK not in request.scope:
        page = page.joined(await gateway.neighbours.replies(Call.of(request.scope)), limit)
    document: dict[str, Any] = {"sessions": page.sessions, "next": None}
    if page.has_more:
        query = {"limit": limit, "after": page.sessions[-1]["session"]}
        document["next"] = "/v1/sessions?" + urlencode(query)
    if page.missing is not None:
        document["missing"] = page.missing
    return json_answer(document, 200)


@router.get(
    "/v1/sessions/{session}",
    summary="A session: where it stands, what waits, its subscriptions",
    openapi_extra=described(path=SESSION),
)
async def get_session(request: Request) -> Response:
    """The session, for a while also after its end."""
    query_values(request.scope, {})
    return json_answer(session_view(session_of(request)), 200)


@router.patch(
    "/v1/sessions/{session}",
    summary="Change a session's limits, or whether policies hold for it",
    openapi_extra=described(path=SESSION, body=CHANGES),
)
async def patch_session(request: Request) -> Response:
    """200 with the session as it is then; what is not named stays."""
    body = await posted_body(request, CHANGES)
    session = live_session_of(request)
    most = session.gateway.driver.limits
    tuning = tuning_of(body, Tuning(session.limits, session.conflated), most)
    session.tune(tuning.limits, conflated=tuning.conflated)
    return json_answer(session_view(session), 200)


@router.delete(
    "/v1/sessions/{session}",
    status_code=204,
    summary="Close a session",
    openapi_extra=described(path=SESSION),
)
async def delete_session(request: Request) -> Response:
    """204; its reader is told goodbye with CLOSED_BY_ADMIN."""
    query_values(request.scope, {})
    gateway_of(request).sessions.close(session_of(request))
    return Response(status_code=204)


@router.get(
    "/v1/sessions/{session}/events",
    summary="The stream of a session that was opened with POST",
    responses=STREAM,
    openapi_extra=described(
        path=SESSION,
        query={"last_event_id": "Continue behind this event, as Last-Event-ID"},
        header={"Last-Event-ID": "Continue behind it"},
    ),
)
async def events(request: Request) -> Response:
    """A stream of server-sent events; it takes the place of one that is there."""
    require_accept(request.scope, "text/event-stream")
    values = query_values(request.scope, {"last_event_id": "bookmark-invalid"})
    number = _number(session_id(request.scope), last_event_id(request, values))
    try:
        is_let_in = await gateway_of(request).bring(session_id(request.scope), number)
    except Problem as problem:  # it passes, and a browser would never retry
        return refusal_stream(problem)
    if not is_let_in:
        return Response(status_code=204)
    session = session_of(request)
    if session.cursor is None:
        detail = "The stream of a plain GET is resumed at its own address."
        raise Problem("session-unknown", detail)
    if number in session.replaced:
        return Response(status_code=204)  # its place is taken, as its stream has said
    try:
        return session_stream(session, number, is_stopping=gateway_of(request).stopping)
    except LimitReached as error:
        return refusal_stream(Problem("limit-reached", f"{error.detail}."))


def session_of(request: Request) -> Session:
    """The session that a request is about.

    Raises:
        Problem: session-unknown.
    """
    return gateway_of(request).sessions.get(session_id(request.scope))


def live_session_of(request: Request) -> Session:
    """The same, if it has not ended.

    Raises:
        Problem: session-unknown.
    """
    session = session_of(request)
    if session.has_ended:
        raise Problem("session-unknown", "The session has ended.")
    return session


async def seek(gateway: Premises, target: Target) -> None:
    """Have the topic here that a subscription names, be it that it was just made elsewhere.

    Raises:
        Problem: bus-unavailable; whether it is there is not known.
    """
    if isinstance(target.topic, str):
        await gateway.catalog.seek(target.topic)
        if isinstance(target.wish.options.bookmark, Bookmark):
            await gateway.catch_up(target.topic, target.wish.options.bookmark)
        if target.wish.options.bookmark is not None:
            await gateway.look_back(target.topic)


def json_answer(document: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    """A document as a response."""
    return Response(msgspec.json.encode(document), status, headers, "application/json")


def _opened(gateway: Gateway, opening: Opening) -> Session:
    """The session, with all of its subscriptions or not at all."""
    try:
        session = gateway.sessions.open(
            limits=opening.limits, conflated=opening.conflated, kept=True, lasts=True
        )
    except LimitReached as error:
        raise Problem("limit-reached", f"{error.detail}.", headers=RETRY_AFTER) from None
    try:
        for target in opening.subscriptions:
            with pointing(target.pointer):
                session.subscribe(target.topic, target.wish)
    except Problem:
        gateway.sessions.discard(session)
        raise
    return session


def _number(session: str, last_id: str | None) -> int | None:
    """Where a reader stands by its last event's id, which is one of this session's.

    Raises:
        Problem: session-unknown.
    """
    if last_id is None:
        return None
    found = parse_cursor(last_id)
    if found is None or found[0] != session:
        raise Problem("session-unknown", "The event is not of this session.")
    return found[1]
