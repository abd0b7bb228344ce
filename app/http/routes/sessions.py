"""`/v1/sessions`: sessions of many subscriptions, and what is known of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from tidegate.app.access.grants import Subject, check_reading
from tidegate.app.gateway import Gateway
from tidegate.app.http.answers import json_answer
from tidegate.app.http.event_stream import session_stream
from tidegate.app.http.internal_call import MARK, call_of
from tidegate.app.http.openapi import LOCATION, SUBSCRIBE_CODES, json_body, name_of, problems, ref
from tidegate.app.http.openapi import answer as answered
from tidegate.app.http.parameters import EVENT_ID, STRICT, SessionPath, query_of
from tidegate.app.http.problems import stopping
from tidegate.app.http.requests import CHANGES, has_left, posted_body, require_accept
from tidegate.app.http.routes.models.events import STREAM
from tidegate.app.http.routes.models.sessions import Continued, OpenedSession, Sessions
from tidegate.app.http.routes.models.sessions import Session as SessionView
from tidegate.app.http.scope import gateway_of, grants_in, subject_in
from tidegate.app.names import SESSION_ID, checked_session_id
from tidegate.app.parameters import Parameters, Read, whole
from tidegate.app.refusals import Refused
from tidegate.app.streams.attach import admit_reader
from tidegate.app.streams.cursor import EventId, parse_cursor
from tidegate.app.streams.decisions import decided_in_turns
from tidegate.app.streams.documents import (
    SessionDocument,
    SessionOpening,
    SessionTuning,
    Tuning,
    opening_of,
    pointing,
    tuning_of,
)
from tidegate.app.streams.scheduler import in_turns
from tidegate.app.streams.session import Session
from tidegate.app.streams.subscriptions import check_count
from tidegate.app.streams.view import Page, answer, session_view
from tidegate.conflation.steps import in_pieces

# Every gateway of a cluster answers with a page, and one of them joins all.
PAGE_MAX = 1_000
OPENED_AT_ONCE = 5  # subscriptions of a session
VIEWED_AT_ONCE = 20  # sessions whose queues are counted in one iteration

router = APIRouter(tags=["sessions"], dependencies=STRICT, generate_unique_id_function=name_of)


def _after(text: str) -> str:
    if not text:
        return ""
    return checked_session_id(text, "options-invalid", "after is the id of a session.")


class Listed(Parameters):
    """The page of sessions to list."""

    limit: Annotated[int, whole("limit", 1, PAGE_MAX), Field(description="At most this many")] = 100
    after: Annotated[
        str,
        Read(_after, {"type": "string", "pattern": f"^({SESSION_ID})?$"}),
        Field(description="Only ids after this one"),
    ] = ""


class ReaderPosition(Parameters):
    """The position of a stream's reader."""

    last_event_id: Annotated[
        str | None, EVENT_ID, Field(description="Continue after this id, as with Last-Event-ID")
    ] = None


@router.post(
    "/v1/sessions",
    status_code=201,
    summary="Open a session with any number of subscriptions",
    responses={
        201: answered("The session is open", ref(OpenedSession), headers=LOCATION),
        **problems(*SUBSCRIBE_CODES, "not-ready", "unsupported-media-type"),
    },
    openapi_extra=json_body(SessionOpening, required=False),
)
async def open_session(request: Request) -> Response:
    """Open a session; 201 with its id and the address of its stream."""
    gateway = gateway_of(request)
    # `curl -X POST` without a body asks for a session with nothing special.
    body = await posted_body(request, may_be_empty=True)
    # The streams are being closed; a client is better sent to another gateway at once.
    if gateway.stopping:
        raise stopping()
    characters_max = gateway.settings.options_characters_max
    opening = await in_turns(opening_of(body, gateway.driver.limits, characters_max))
    with pointing("/subscriptions"):
        # Before topics are looked for, as each of them may cost a question to the bus.
        check_count(len(opening.subscriptions), gateway.settings.session_subscriptions_max)
    subject = subject_in(request.scope)
    for target in opening.subscriptions:
        with pointing(target.pointer):
            check_reading(grants_in(request.scope), target.topic)
    for target in opening.subscriptions:
        await gateway.seek(target.topic, target.request.options.bookmark, by=subject)
    session, subscriptions = await _opened(gateway, opening, subject)
    events = f"/v1/sessions/{session.id}/events"
    document = {"session": session.id, "events": events, "subscriptions": subscriptions}
    return json_answer(document, 201, {"Location": f"/v1/sessions/{session.id}"})


@router.get(
    "/v1/sessions",
    summary="The sessions that have not ended, by id",
    responses={200: answered("A page", ref(Sessions)), **problems("options-invalid")},
)
async def list_sessions(request: Request, asked: Annotated[Listed, Query()]) -> Response:
    """List `{"sessions": [...], "next": address or null}`, of all gateways where there are several.

    `missing` names those that did not answer.
    """
    gateway = gateway_of(request)
    limit = asked.limit
    # One more than the page has tells of a next page.
    found = gateway.sessions.listed(asked.after, limit + 1, subject_in(request.scope))

    def viewed(piece: Sequence[Session]) -> list[dict[str, Any]]:
        return [session_view(each, whole=False) for each in piece]

    shown = await in_turns(in_pieces(found[:limit], VIEWED_AT_ONCE, viewed))
    page = Page(shown, len(found) > limit)
    # A peer that asks wants this gateway's own sessions.
    if gateway.peers is not None and MARK not in request.scope:
        page = page.joined(await gateway.peers.broadcast(call_of(request.scope)), limit)
    document: dict[str, Any] = {"sessions": page.sessions, "next": None}
    if page.has_more:
        # By id and not by position: sessions end between two pages, and no other may be passed
        # over.
        query = {"limit": limit, "after": page.sessions[-1]["session"]}
        document["next"] = "/v1/sessions?" + urlencode(query)
    if page.missing is not None:
        document["missing"] = page.missing
    return json_answer(document)


@router.get(
    "/v1/sessions/{session}",
    summary="A session: its state, its queue, its subscriptions",
    responses={200: answered("The session", ref(SessionView)), **problems("session-unknown")},
)
async def get_session(request: Request, session: SessionPath) -> Response:
    """Return the session; also for some time after its end."""
    return json_answer(session_view(gateway_of(request).sessions.get(session)))


@router.patch(
    "/v1/sessions/{session}",
    summary="Change a session's queue limits, or whether policies apply to it",
    responses={
        200: answered("The session as it is then", ref(SessionView)),
        **problems("session-unknown", "options-invalid", "unsupported-media-type"),
    },
    openapi_extra=json_body(SessionTuning, CHANGES),
)
async def patch_session(request: Request, session: SessionPath) -> Response:
    """Change the session; 200 with its new state. Omitted fields stay."""
    body = await posted_body(request, CHANGES)
    found = gateway_of(request).live_session(session)
    most = found.context.driver.limits
    tuning = tuning_of(body, Tuning(found.limits, found.conflated), most)
    found.tune(tuning.limits, conflated=tuning.conflated)
    return json_answer(session_view(found))


@router.delete(
    "/v1/sessions/{session}",
    status_code=204,
    summary="Close a session",
    response_class=Response,
    response_description="It is closed",
    responses=problems("session-unknown"),
)
async def delete_session(request: Request, session: SessionPath) -> Response:
    """Close the session; 204, and `goodbye` with CLOSED_BY_ADMIN for its reader."""
    sessions = gateway_of(request).sessions
    sessions.close(sessions.get(session))
    return Response(status_code=204)


@router.get(
    "/v1/sessions/{session}/events",
    summary="The stream of a session that was opened with POST",
    response_class=Response,
    responses={**STREAM, **problems("session-unknown", "bookmark-invalid")},
)
async def events(
    request: Request,
    session: SessionPath,
    place: Annotated[ReaderPosition, Query()],
    continued: Annotated[Continued, Header()],
) -> Response:
    """Stream server-sent events; the new stream replaces an open one."""
    require_accept(request.scope, "text/event-stream")
    # The header of a browser that reconnects is newer than the query of its address.
    # Read here, as the framework does not know the name that polyfills give it.
    last_id = continued.last_event_id or query_of(type(place), request.scope).last_event_id
    seen = _seen(session, last_id) if last_id else None
    subject = subject_in(request.scope)
    if await has_left(request):  # else it would take the session from the reader that came after
        return Response(status_code=204)
    number = None if seen is None else seen.number
    if not await gateway_of(request).bring(session, number, subject):
        return Response(status_code=204)
    found = gateway_of(request).sessions.get(session)
    # Here and not before: the session may have just come from another gateway.
    admit_reader(found, subject)
    # Its ids are bookmarks of one topic and say nothing of a session.
    if found.cursor is None:
        detail = "The stream of a plain GET is resumed at its own address."
        raise Refused("session-unknown", detail)
    if number in found.cursor.replaced:
        return Response(status_code=204)  # its place is taken, as its stream has said
    return await session_stream(found, seen, is_stopping=gateway_of(request).stopping)


async def _opened(
    gateway: Gateway, opening: SessionDocument, subject: Subject | None
) -> tuple[Session, list[dict[str, Any]]]:
    """Open the session, with all of its subscriptions or not at all; return what to say of them."""
    session = gateway.sessions.open(
        limits=opening.limits,
        conflated=opening.conflated,
        kept=True,
        lasts=True,
        subject=subject,
    )
    answers: list[dict[str, Any]] = []
    try:
        for number, target in enumerate(opening.subscriptions):
            with pointing(target.pointer):
                wanted = target.request.by(subject)
                decisions = await decided_in_turns(session.context, target.topic, wanted)
                # An administrator may have closed it meanwhile.
                live = gateway.live_session(session.id)
                asked, warnings = live.subscribe(target.topic, wanted, decisions)
                answers.append(answer(asked, warnings))
            if number % OPENED_AT_ONCE == 0:
                await asyncio.sleep(0)
    except BaseException:
        # A session that was refused halfway must not count, or be listed.
        gateway.sessions.discard(session)
        raise
    return session, answers


def _seen(session: str, last_id: str) -> EventId:
    """Return a reader's last event id, which must be one of this session.

    Raises:
        Refused: session-unknown.
    """
    found = parse_cursor(last_id)
    if found is None or found.session != session:
        raise Refused("session-unknown", "The event is not of this session.")
    return found
