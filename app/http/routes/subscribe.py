"""`/v1/topics/{topic}/subscribe`: a stream of server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from starlette.types import Scope

from tidegate.app.access.grants import Subject, session_unknown
from tidegate.app.definitions.topic import TopicNotUsable
from tidegate.app.gateway import Gateway
from tidegate.app.http.event_stream import EventStream, session_stream
from tidegate.app.http.openapi import SUBSCRIBE_CODES, json_body, name_of, problems
from tidegate.app.http.parameters import STRICT, described, posted_parameters
from tidegate.app.http.problems import stopping
from tidegate.app.http.requests import (
    has_left,
    query_values,
    require_accept,
    topic_or_pattern,
)
from tidegate.app.http.routes.models.events import STREAM
from tidegate.app.http.routes.models.sessions import Continued, Subscribing
from tidegate.app.http.routes.subscribe_plan import SubscribePlan
from tidegate.app.http.scope import gateway_of, subject_in
from tidegate.app.names import TopicPattern
from tidegate.app.parameters import text
from tidegate.app.refusals import Refused
from tidegate.app.streams.attach import admit_reader, attach_new, attach_plain
from tidegate.app.streams.cursor import EventId, parse_cursor
from tidegate.app.streams.decisions import decided_in_turns, declined, end_reason
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.scheduler import in_turns
from tidegate.app.streams.session import Session
from tidegate.app.streams.sse import EVENT_STREAM
from tidegate.app.streams.subscribe_request import (
    PLACES_AT_ONCE,
    SubscribeRequest,
    place_of,
    places_of,
)
from tidegate.app.streams.subscriptions import FIRST, PlainSubscription
from tidegate.conflation.outputs import CloseReason, Unsubscribed
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import Refusal
from tidegate.keys.text.bookmark import Bookmark

router = APIRouter(tags=["subscribing"], generate_unique_id_function=name_of)
_PATTERN = "Name of a topic, or a pattern with `*` (one part) and `>` (the rest)"
AGAIN_S = 1
"""How soon a reader comes again whose topic has become unusable here."""

_REFUSALS = problems(*SUBSCRIBE_CODES, "session-unknown")


@router.get(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe: a stream of server-sent events",
    response_class=Response,
    responses={**STREAM, **_REFUSALS},
    openapi_extra={"parameters": described(_PATTERN, Subscribing, Continued, pattern=True)},
)
async def subscribe(request: Request) -> Response:
    """Stream one subscription; parameters in the query."""
    scope = request.scope
    # Both are read first: what is unknown or given twice is refused before what is wrong.
    query_values(scope, Subscribing.codes)
    last_event_id = last_event_id_of(scope)
    plan = request.app.state.plans.of(scope)
    require_accept(scope, EVENT_STREAM)
    return await _stream(request, plan, last_event_id)


async def _wanted(
    request: Request, topic: Annotated[str, text(), Path(description=_PATTERN)]
) -> str | TopicPattern:
    """Return the topic or the pattern in the path, as the client wrote it."""
    return topic_or_pattern(request.scope)


Wanted = Annotated[str | TopicPattern, Depends(_wanted)]


@router.post(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe, the parameters as a JSON object of texts",
    response_class=Response,
    responses={**STREAM, **_REFUSALS, **problems("unsupported-media-type")},
    openapi_extra=json_body(Subscribing),
    dependencies=STRICT,
)
async def subscribe_by_post(
    request: Request, wanted: Wanted, continued: Annotated[Continued, Header()]
) -> Response:
    """Stream one subscription; the parameters are a JSON object of texts."""
    require_accept(request.scope, EVENT_STREAM)
    plan = SubscribePlan(wanted, await posted_parameters(Subscribing, request))
    return await _stream(request, plan, continued.last_event_id)


def last_event_id_of(scope: Scope) -> str | None:
    """Return the id of the header after which a request continues, which few have.

    Raises:
        Refused: bookmark-invalid.
    """
    if not any(name == b"last-event-id" for name, _ in scope["headers"]):
        return None
    return Continued.read(scope).last_event_id


async def _stream(request: Request, plan: SubscribePlan, last_event_id: str | None) -> Response:
    """Return the stream of a request; `last_event_id`: from the header.

    Raises:
        Refusal: one that passes has `retry_after_s`, and is an event where a GET has asked.
    """
    gateway, subject = gateway_of(request), subject_in(request.scope)
    # A browser that reconnects repeats its address; only the header knows what came since.
    last_id = last_event_id or plan.asked.last_event_id or None
    try:
        if isinstance(plan.target, TopicPattern):
            if last_id is not None and await has_left(request):
                return Response(status_code=204)  # its session may be another connection's now
            return await _pattern_stream(gateway, subject, plan.target, plan, last_id)
        return await _topic_stream(gateway, subject, plan.target, plan, last_id)
    except TopicNotUsable as refusal:
        if last_id is not None:  # a reader that was served comes again, perhaps elsewhere
            refusal.retry_after_s = AGAIN_S
        raise


async def _topic_stream(
    gateway: Gateway, subject: Subject | None, name: str, plan: SubscribePlan, last_id: str | None
) -> Response:
    if plan.asked.bookmarks is not None:
        raise Refused("bookmark-invalid", "bookmarks are for patterns; a topic has last_event_id.")
    resume = None if last_id is None else place_of(last_id)
    # The topic may have just been made at another gateway, and not be known here yet.
    is_gone = await gateway.catalog.seek(name) is None
    if is_gone and resume is not None and gateway.catalog.has_ended(resume.epoch):
        return Response(status_code=204)  # as its stream has said
    # Refuses a topic that is not there, before the parameters are looked at.
    gateway.catalog.get(name)
    wanted = plan.request(gateway.settings).by(subject)
    await gateway.reach(name, resume, wanted.options.bookmark, by=subject)
    granted = plan.granted(gateway, name, wanted, resume)
    if granted.decided.subscription.command is Command.SOW and resume is not None:
        topic = gateway.driver.engine.topic(name)
        if topic.place(resume).epoch == topic.epoch and resume.offset <= topic.head:
            return Response(status_code=204)  # a finished sow: the browser need not come back
    if gateway.stopping:
        raise stopping()
    return _opened(gateway, subject, name, wanted, granted)


def _opened(
    gateway: Gateway,
    subject: Subject | None,
    name: str,
    wanted: SubscribeRequest,
    granted: PlainSubscription,
) -> EventStream:
    session = gateway.sessions.open(subject=subject)
    if granted.is_shared:
        return _begun(gateway, session, lambda: attach_plain(session, granted))
    decisions = {name: granted.decided}
    return _begun(gateway, session, lambda: attach_new(session, name, wanted, decisions))


def stream_at_once(
    gateway: Gateway, plan: SubscribePlan, last_event_id: str | None
) -> EventStream | None:
    """Return the stream of a plan, from the present or an id on; None where that has to wait.

    Only for a gateway that asks for no tokens.

    Raises:
        Refusal: no session was opened.
    """
    name = plan.target
    if isinstance(name, TopicPattern) or gateway.catalog.served(name) is None or gateway.stopping:
        return None
    wanted = plan.request(gateway.settings)
    resume = place_of(last_event_id) if last_event_id else None
    if not plan.is_plain or not (resume is None or _is_here(gateway, name, wanted, resume)):
        return None
    return _opened(gateway, None, name, wanted, plan.granted(gateway, name, wanted, resume))


def _is_here(gateway: Gateway, name: str, wanted: SubscribeRequest, resume: Bookmark) -> bool:
    """Return True if a reader's place is one of the topic, and no other part has to be asked."""
    if gateway.bus is not None or gateway.archive is not None or wanted.command == Command.SOW:
        return False
    topic = gateway.driver.engine.topic(name)
    place = topic.place(resume)
    return place.epoch == topic.epoch and place.offset <= topic.head


async def _pattern_stream(
    gateway: Gateway,
    subject: Subject | None,
    pattern: TopicPattern,
    plan: SubscribePlan,
    last_id: str | None,
) -> Response:
    """Stream all topics of a pattern; those that are made later join."""
    # The session is kept, as the ids of its events mean nothing without it.
    if last_id is not None:
        return await _pattern_again(gateway, subject, pattern, last_id)
    wanted = plan.request(gateway.settings).by(subject)
    is_sow = wanted.command == Command.SOW
    places = await _places(gateway, subject, pattern, wanted, plan.asked)
    decisions = await decided_in_turns(gateway.sessions.context, pattern, wanted, places)
    if gateway.stopping:
        raise stopping()
    session = gateway.sessions.open(kept=True, lasts=not is_sow, subject=subject)
    answer = _begun(gateway, session, lambda: attach_new(session, pattern, wanted, decisions))
    gone: dict[str, list[str]] = {}
    missing = (places or {}).keys() - decisions.keys()
    if missing:  # not for good, where there was no room for it
        missing -= declined(gateway.sessions.context, session.subscription(FIRST)).keys()
    for name in sorted(missing):
        reason = end_reason(gateway.sessions.context, name, wanted.grants)
        gone.setdefault(reason, []).append(name)
    for reason, names in gone.items():  # as one: a session keeps what it has sent of each
        session.send_end(Unsubscribed(FIRST, ",".join(names), reason))
    if is_sow and not session.subscription("s1").topics:
        answer.reader.consumer.give_up(CloseReason.UNSUBSCRIBED)
    return answer


async def _places(
    gateway: Gateway,
    subject: Subject | None,
    pattern: TopicPattern,
    wanted: SubscribeRequest,
    asked: Subscribing,
) -> dict[str, Bookmark] | None:
    """Return the places of a reader whose session is gone, once what it has is here, too.

    Raises:
        Refused: bookmark-invalid, options-invalid, bus-unavailable.
    """
    if not asked.bookmarks:
        return None
    if wanted.command == Command.SOW:
        raise Refused("options-invalid", "bookmarks continue a subscription; a sow has an end.")
    named = await in_turns(places_of(asked.bookmarks))
    places = {topic: place for topic, place in named.items() if pattern.matches(topic)}
    for number, (topic, place) in enumerate(places.items()):
        if number % PLACES_AT_ONCE == 0:
            await asyncio.sleep(0)
        if wanted.grants is not None and not wanted.grants.may_read(topic):
            continue  # whether it is there, and how far, is not to be known
        with contextlib.suppress(TopicNotUsable):  # a `refused` event names it; the others go on
            if await gateway.catalog.seek(topic) is not None:
                await gateway.reach(topic, place, by=subject)
    return places


async def _pattern_again(
    gateway: Gateway, subject: Subject | None, pattern: TopicPattern, last_id: str
) -> Response:
    seen = parse_cursor(last_id) or EventId("", 0)
    if seen.session and not await gateway.bring(seen.session, seen.number, subject):
        return Response(status_code=204)
    session = gateway.sessions.get(seen.session)
    admit_reader(session, subject)
    cursor = session.cursor
    is_whole = session.closed is not CloseReason.UNSUBSCRIBED
    if (
        cursor is None
        or session.pattern != pattern.text
        or not (is_whole or seen.number == cursor.number)
    ):
        raise session_unknown()
    return await session_stream(session, seen, is_stopping=gateway.stopping)


def _begun(
    gateway: Gateway, session: Session, attach: Callable[[], tuple[Reader, bytes]]
) -> EventStream:
    try:
        return EventStream(session, *attach())
    except Refusal:
        gateway.sessions.discard(session)
        raise
