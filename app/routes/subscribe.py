"""`/v1/topics/{topic}/subscribe`: a stream of server-sent events."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.gateway import Gateway, gateway_of
from app.openapi import described
from app.posted import JSON, posted_texts
from app.problems import Problem
from app.query import header_value, query_values, require_accept
from app.sessions.asked import decisions_of
from app.sessions.cursor import parse_cursor
from app.sessions.joining import begun
from app.sessions.session import Session
from app.stream import EventStream, refusal_stream, session_stream, stopping_stream
from app.topic_pattern import TopicPattern, topic_or_pattern
from app.topic_places import place_of, places_of
from app.wish import PARAMETERS, Decided, Wish
from conflation.bookmark import Bookmark
from conflation.errors import EngineError, LimitReached
from conflation.outputs import CloseReason, Unsubscribed
from conflation.subscription import Command
from keys.errors import KeysError

_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)

router = APIRouter(tags=["subscribing"])
STREAM: dict[int | str, dict[str, object]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {}}},
    204: {"description": "The subscription has ended; do not come back"},
}


_PARAMETERS = {**PARAMETERS, "bookmarks": "bookmark-invalid"}
_PATH = {"topic": "Name of a topic, or a pattern with * (one part) and > (the rest)"}
_MEANINGS = {
    "options": "conflation=1s,conflation_key=[/a],pace=batch",
    "filter": "Which messages: AMPS's filter language",
    "order_by": "Order of snapshot rows and windows: /a DESC,/b",
    "command": "subscribe, sow, sow_and_subscribe, delta_subscribe, or sow_and_delta_subscribe",
    "format": "value, envelope, or batch",
    "last_event_id": "Continue behind this event, as Last-Event-ID",
    "bookmarks": "Continue a pattern's topics behind these places: px.eur=e1-7,px.usd=e2-9",
}


@router.get(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe: a stream of server-sent events",
    responses=STREAM,
    openapi_extra=described(
        path=_PATH, query=_MEANINGS, header={"Last-Event-ID": "Continue behind it"}
    ),
)
async def subscribe(request: Request) -> Response:
    """A stream of one subscription; parameters in the query."""
    wanted = topic_or_pattern(request.scope)
    require_accept(request.scope, "text/event-stream")
    return await _stream(request, wanted, query_values(request.scope, _PARAMETERS))


@router.post(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe, the parameters as a JSON object of texts",
    responses=STREAM,
    openapi_extra=described(
        path=_PATH, header={"Last-Event-ID": "Continue behind it"}, body=[JSON]
    ),
)
async def subscribe_by_post(request: Request) -> Response:
    """The same, with the parameters as a JSON object of texts."""
    wanted = topic_or_pattern(request.scope)
    require_accept(request.scope, "text/event-stream")
    return await _stream(request, wanted, await posted_texts(request, _PARAMETERS))


async def _stream(
    request: Request, wanted: str | TopicPattern, values: Mapping[str, str]
) -> Response:
    gateway = gateway_of(request)
    last_id = last_event_id(request, values)
    try:
        if isinstance(wanted, TopicPattern):
            return await _pattern_stream(gateway, wanted, values, last_id)
        return await _topic_stream(gateway, wanted, values, last_id)
    except LimitReached as error:
        return refusal_stream(Problem("limit-reached", f"{error.detail}."))


async def _topic_stream(
    gateway: Gateway, name: str, values: Mapping[str, str], last_id: str | None
) -> Response:
    if "bookmarks" in values:
        raise Problem("bookmark-invalid", "bookmarks are for patterns; a topic has last_event_id.")
    resume = None if last_id is None else place_of(last_id)
    is_gone = await gateway.catalog.seek(name) is None
    if is_gone and resume is not None and gateway.catalog.has_ended(resume.epoch):
        return Response(status_code=204)  # as its stream has said
    gateway.catalog.get(name)
    wish = _wish(gateway, values)
    for seen in (resume, wish.options.bookmark):
        if isinstance(seen, Bookmark):
            await gateway.catch_up(name, seen)
    if resume is not None or wish.options.bookmark is not None:
        await gateway.look_back(name)
    decisions = decisions_of(gateway, name, wish, None if resume is None else {name: resume})
    if decisions[name].subscription.command is Command.SOW and resume is not None:
        topic = gateway.driver.engine.topic(name)
        if resume.epoch == topic.epoch and resume.offset <= topic.head:
            return Response(status_code=204)  # a finished sow: the browser need not come back
    if gateway.stopping:
        return stopping_stream()
    return _begun(gateway, gateway.sessions.open(), name, wish, decisions)


async def _pattern_stream(
    gateway: Gateway, pattern: TopicPattern, values: Mapping[str, str], last_id: str | None
) -> Response:
    """A session that is kept, as its ids are its own; topics that are made later join it."""
    if last_id is not None:
        return await _pattern_again(gateway, pattern, last_id)
    wish = _wish(gateway, values, many=True)
    is_sow = wish.command == Command.SOW
    places = await _places(gateway, pattern, wish, values)
    decisions = decisions_of(gateway, pattern, wish, places)
    if gateway.stopping:
        return stopping_stream()
    session = gateway.sessions.open(kept=True, lasts=not is_sow)
    answer = _begun(gateway, session, pattern, wish, decisions)
    for name in sorted((places or {}).keys() - decisions.keys()):
        session.tell_end(Unsubscribed("s1", name, "REMOVED"))
    if is_sow and not session.subscription("s1").topics:
        answer.reader.consumer.give_up(CloseReason.UNSUBSCRIBED)
    return answer


async def _places(
    gateway: Gateway, pattern: TopicPattern, wish: Wish, values: Mapping[str, str]
) -> dict[str, Bookmark] | None:
    """What a reader has whose session is gone; once that is here too, if it can be.

    Raises:
        Problem: bookmark-invalid, options-invalid, bus-unavailable.
    """
    if not values.get("bookmarks"):
        return None
    if wish.command == Command.SOW:
        raise Problem("options-invalid", "bookmarks continue a subscription; a sow has an end.")
    places = {
        topic: place
        for topic, place in places_of(values["bookmarks"]).items()
        if pattern.matches(topic)
    }
    for topic, place in places.items():
        if await gateway.catalog.seek(topic) is not None:
            await gateway.catch_up(topic, place)
            await gateway.look_back(topic)
    return places


async def _pattern_again(gateway: Gateway, pattern: TopicPattern, last_id: str) -> Response:
    session_id, number = parse_cursor(last_id) or ("", 0)
    if session_id:
        try:
            is_let_in = await gateway.bring(session_id, number)
        except Problem as problem:  # it passes, and a browser would never retry
            return refusal_stream(problem)
        if not is_let_in:
            return Response(status_code=204)
    session = gateway.sessions.get(session_id)
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
    wish: Wish,
    decisions: Mapping[str, Decided],
) -> EventStream:
    try:
        return EventStream(*begun(session, target, wish, decisions))
    except (Problem, EngineError, KeysError):
        gateway.sessions.discard(session)
        raise


def _wish(gateway: Gateway, values: Mapping[str, str], *, many: bool = False) -> Wish:
    return Wish.parse(values, gateway.settings.options_characters_max, many=many)


def last_event_id(request: Request, values: Mapping[str, str]) -> str | None:
    """The header wins over the query: a browser's reconnect knows better than its address.

    Raises:
        Problem: bookmark-invalid.
    """
    text = header_value(request.scope, "last-event-id", "bookmark-invalid")
    text = text or values.get("last_event_id")
    if not text:
        return None
    if not _ID.fullmatch(text):
        raise Problem("bookmark-invalid", "An event id is at most 128 of A-Z a-z 0-9 . _ ~ -.")
    return text
