"""`/v1/topics/{topic}/subscribe`: a stream of server-sent events."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from tidegate.app.access.grants import Subject, subject_in
from tidegate.app.definitions.topic import TopicNotUsable
from tidegate.app.gateway import Gateway, gateway_of
from tidegate.app.http.openapi import json_body, problems
from tidegate.app.http.parameters import STRICT, text
from tidegate.app.http.problems import Problem
from tidegate.app.http.requests import TopicPattern, require_accept, topic_or_pattern
from tidegate.app.routes.models.events import STREAM
from tidegate.app.routes.models.sessions import Continued, Subscribing
from tidegate.app.sessions.attach import admit_reader, attach_new
from tidegate.app.sessions.cursor import parse_cursor
from tidegate.app.sessions.session import Session
from tidegate.app.sessions.stream import (
    EventStream,
    refusal_stream,
    session_stream,
    stopping_stream,
)
from tidegate.app.sessions.subscribe_request import (
    RequestedSubscription,
    SubscribeRequest,
    place_of,
    places_of,
)
from tidegate.app.sessions.subscriptions import decide_target, end_reason
from tidegate.conflation.errors import EngineError, LimitReached
from tidegate.conflation.outputs import CloseReason, Unsubscribed
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import KeysError
from tidegate.keys.text.bookmark import Bookmark

router = APIRouter(tags=["subscribing"], dependencies=STRICT)
_PATTERN = "Name of a topic, or a pattern with `*` (one part) and `>` (the rest)"
_REFUSALS = problems(
    "topic-unknown", "topic-invalid", "options-invalid", "filter-invalid", "bookmark-invalid",
    "bookmark-expired", "session-unknown",
)  # fmt: skip


async def _wanted(
    request: Request, topic: Annotated[str, text(), Path(description=_PATTERN)]
) -> str | TopicPattern:
    """Return the topic or the pattern in the path, as the client wrote it."""
    return topic_or_pattern(request.scope)


Wanted = Annotated[str | TopicPattern, Depends(_wanted)]


@router.get(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe: a stream of server-sent events",
    response_class=Response,
    responses={**STREAM, **_REFUSALS},
)
async def subscribe(
    request: Request,
    wanted: Wanted,
    asked: Annotated[Subscribing, Query()],
    continued: Annotated[Continued, Header()],
) -> Response:
    """Stream one subscription; parameters in the query."""
    require_accept(request.scope, "text/event-stream")
    return await _stream(request, wanted, asked, continued)


@router.post(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe, the parameters as a JSON object of texts",
    response_class=Response,
    responses={**STREAM, **_REFUSALS, **problems("unsupported-media-type")},
    openapi_extra=json_body(Subscribing),
)
async def subscribe_by_post(
    request: Request, wanted: Wanted, continued: Annotated[Continued, Header()]
) -> Response:
    """Stream one subscription; the parameters are a JSON object of texts."""
    require_accept(request.scope, "text/event-stream")
    return await _stream(request, wanted, await Subscribing.posted(request), continued)


async def _stream(
    request: Request, wanted: str | TopicPattern, asked: Subscribing, continued: Continued
) -> Response:
    gateway, subject = gateway_of(request), subject_in(request.scope)
    # A browser that reconnects repeats its address; only the header knows what came since.
    last_id = continued.last_event_id or asked.last_event_id or None
    try:
        if isinstance(wanted, TopicPattern):
            return await _pattern_stream(gateway, subject, wanted, asked, last_id)
        return await _topic_stream(gateway, subject, wanted, asked, last_id)
    except LimitReached as error:
        return refusal_stream(Problem("limit-reached", f"{error.detail}."))
    except TopicNotUsable as problem:
        if last_id is None:
            raise
        return refusal_stream(problem)  # a reader that was served comes again, perhaps elsewhere


async def _topic_stream(
    gateway: Gateway, subject: Subject | None, name: str, asked: Subscribing, last_id: str | None
) -> Response:
    if asked.bookmarks is not None:
        raise Problem("bookmark-invalid", "bookmarks are for patterns; a topic has last_event_id.")
    resume = None if last_id is None else place_of(last_id)
    # The topic may have just been made at another gateway, and not be known here yet.
    is_gone = await gateway.catalog.seek(name) is None
    if is_gone and resume is not None and gateway.catalog.has_ended(resume.epoch):
        return Response(status_code=204)  # as its stream has said
    # Refuses a topic that is not there, before the parameters are looked at.
    gateway.catalog.get(name)
    wish = _wish(gateway, subject, asked)
    await gateway.reach(name, resume, wish.options.bookmark)
    decisions = decide_target(
        gateway.sessions.context, name, wish, None if resume is None else {name: resume}
    )
    if decisions[name].subscription.command is Command.SOW and resume is not None:
        topic = gateway.driver.engine.topic(name)
        if resume.epoch == topic.epoch and resume.offset <= topic.head:
            return Response(status_code=204)  # a finished sow: the browser need not come back
    if gateway.stopping:
        return stopping_stream()
    return _begun(gateway, gateway.sessions.open(subject=subject), name, wish, decisions)


async def _pattern_stream(
    gateway: Gateway,
    subject: Subject | None,
    pattern: TopicPattern,
    asked: Subscribing,
    last_id: str | None,
) -> Response:
    """Stream all topics of a pattern; those that are made later join."""
    # The session is kept, as the ids of its events mean nothing without it.
    if last_id is not None:
        return await _pattern_again(gateway, subject, pattern, last_id)
    wish = _wish(gateway, subject, asked, many=True)
    is_sow = wish.command == Command.SOW
    places = await _places(gateway, pattern, wish, asked)
    decisions = decide_target(gateway.sessions.context, pattern, wish, places)
    if gateway.stopping:
        return stopping_stream()
    session = gateway.sessions.open(kept=True, lasts=not is_sow, subject=subject)
    answer = _begun(gateway, session, pattern, wish, decisions)
    for name in sorted((places or {}).keys() - decisions.keys()):
        session.send_end(Unsubscribed("s1", name, end_reason(gateway.sessions.context, name)))
    if is_sow and not session.subscription("s1").topics:
        answer.reader.consumer.give_up(CloseReason.UNSUBSCRIBED)
    return answer


async def _places(
    gateway: Gateway, pattern: TopicPattern, wish: SubscribeRequest, asked: Subscribing
) -> dict[str, Bookmark] | None:
    """Return the places of a reader whose session is gone, once what it has is here, too.

    Raises:
        Problem: bookmark-invalid, options-invalid, bus-unavailable.
    """
    if not asked.bookmarks:
        return None
    if wish.command == Command.SOW:
        raise Problem("options-invalid", "bookmarks continue a subscription; a sow has an end.")
    places = {
        topic: place
        for topic, place in places_of(asked.bookmarks).items()
        if pattern.matches(topic)
    }
    for topic, place in places.items():
        with contextlib.suppress(TopicNotUsable):  # a `refused` event names it; the others go on
            if await gateway.catalog.seek(topic) is not None:
                await gateway.reach(topic, place)
    return places


async def _pattern_again(
    gateway: Gateway, subject: Subject | None, pattern: TopicPattern, last_id: str
) -> Response:
    session_id, number = parse_cursor(last_id) or ("", 0)
    if session_id:
        try:
            is_let_in = await gateway.bring(session_id, number)
        except Problem as problem:  # it passes, and a browser would never retry
            return refusal_stream(problem)
        if not is_let_in:
            return Response(status_code=204)
    session = gateway.sessions.get(session_id)
    admit_reader(session, subject)
    cursor = session.cursor
    is_whole = session.closed is not CloseReason.UNSUBSCRIBED
    if (
        cursor is None
        or session.pattern != pattern.text
        or not (is_whole or number == cursor.number)
    ):
        raise Problem("session-unknown", "There is no such session, or not any more.")
    return session_stream(session, number, is_stopping=gateway.stopping)


def _begun(
    gateway: Gateway,
    session: Session,
    target: str | TopicPattern,
    wish: SubscribeRequest,
    decisions: Mapping[str, RequestedSubscription],
) -> EventStream:
    try:
        return EventStream(session, *attach_new(session, target, wish, decisions))
    except (Problem, EngineError, KeysError):
        gateway.sessions.discard(session)
        raise


def _wish(
    gateway: Gateway, subject: Subject | None, asked: Subscribing, *, many: bool = False
) -> SubscribeRequest:
    characters_max = gateway.settings.options_characters_max
    grants = None if subject is None else subject.grants
    return SubscribeRequest.parse(asked, characters_max, many=many, grants=grants)
