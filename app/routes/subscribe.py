"""`/v1/topics/{topic}/subscribe`: a stream of server-sent events."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.audience import Audience
from app.gateway import SUBSCRIPTIONS_MAX, Gateway, gateway_of
from app.openapi import described
from app.posted import JSON, posted_texts
from app.problems import Problem
from app.query import header_value, query_values, require_accept
from app.stream import EventStream, refusal_stream
from app.topic_pattern import TopicPattern, topic_or_pattern
from app.wish import PARAMETERS, decided
from conflation.bookmark import Bookmark
from conflation.errors import BookmarkInvalid, EngineError, LimitReached
from conflation.outputs import CloseReason
from conflation.subscription import Command

UNKNOWN_EPOCH = "unknown"

_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)

router = APIRouter(tags=["subscribing"])
_STREAM: dict[int | str, dict[str, object]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {}}},
    204: {"description": "The subscription has ended; do not come back"},
}


_PATH = {"topic": "Name of a topic, or a pattern with * (one part) and > (the rest)"}
_MEANINGS = {
    "options": "conflation=1s,conflation_key=[/a],pace=batch",
    "filter": "Which messages: AMPS's filter language",
    "order_by": "Order of snapshot rows and windows: /a DESC,/b",
    "command": "subscribe, sow, sow_and_subscribe, delta_subscribe, or sow_and_delta_subscribe",
    "format": "value, envelope, or batch",
    "last_event_id": "Continue behind this event, as Last-Event-ID",
}


@router.get(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe: a stream of server-sent events",
    responses=_STREAM,
    openapi_extra=described(
        path=_PATH, query=_MEANINGS, header={"Last-Event-ID": "Continue behind it"}
    ),
)
async def subscribe(request: Request) -> Response:
    """A stream of one subscription; parameters in the query."""
    wanted = topic_or_pattern(request.scope)
    require_accept(request.scope, "text/event-stream")
    return _stream(request, wanted, query_values(request.scope, PARAMETERS))


@router.post(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe, the parameters as a JSON object of texts",
    responses=_STREAM,
    openapi_extra=described(
        path=_PATH, header={"Last-Event-ID": "Continue behind it"}, body=[JSON]
    ),
)
async def subscribe_by_post(request: Request) -> Response:
    """The same, with the parameters as a JSON object of texts."""
    wanted = topic_or_pattern(request.scope)
    require_accept(request.scope, "text/event-stream")
    return _stream(request, wanted, await posted_texts(request, PARAMETERS))


def _stream(request: Request, wanted: str | TopicPattern, values: Mapping[str, str]) -> Response:
    gateway = gateway_of(request)
    resume = _last_event_id(request, values)
    try:
        if isinstance(wanted, TopicPattern):
            return _pattern_stream(gateway, wanted, values, resume)
        return _topic_stream(gateway, wanted, values, resume)
    except LimitReached as error:
        return refusal_stream(Problem("limit-reached", f"{error.detail}."))


def _topic_stream(
    gateway: Gateway, name: str, values: Mapping[str, str], resume: Bookmark | None
) -> Response:
    is_gone = gateway.catalog.find(name) is None
    if is_gone and resume is not None and gateway.catalog.has_ended(resume.epoch):
        return Response(status_code=204)  # as its stream has said
    subscription, form, _ = decided(gateway, name, values, resume)
    if subscription.command is Command.SOW and resume is not None:
        topic = gateway.driver.engine.topic(name)
        if resume.epoch == topic.epoch and resume.offset <= topic.head:
            return Response(status_code=204)  # a finished sow: the browser need not come back
    if gateway.stopping:
        return _stopping()
    audience = Audience(gateway)
    try:
        style = audience.join(subscription, form)
    except EngineError:
        audience.consumer.close()
        raise
    # Without rows to come first hello has an id: who leaves now can come back to this place.
    is_bare = not (subscription.command.queries or subscription.replay or resume)
    return _served(gateway, audience, id_text=str(style.cut) if is_bare else "")


def _pattern_stream(
    gateway: Gateway, pattern: TopicPattern, values: Mapping[str, str], resume: Bookmark | None
) -> Response:
    """A session that lasts: topics that are made later join it."""
    if resume is not None:
        raise Problem("bookmark-invalid", "The stream of a pattern has no ids to come back to.")
    entries = gateway.catalog.listed("", "", gateway.settings.topics_max)
    names = [entry.record.name for entry in entries if pattern.matches(entry.record.name)]
    if len(names) > SUBSCRIPTIONS_MAX:
        detail = f"A session has at most {SUBSCRIPTIONS_MAX} subscriptions; the pattern takes more."
        raise Problem("limit-reached", detail)
    wishes = [decided(gateway, name, values, by_pattern=True) for name in names]
    if gateway.stopping:
        return _stopping()
    is_sow = values.get("command") == Command.SOW
    audience = Audience(gateway, lasts=not is_sow)
    try:
        for subscription, form, _ in wishes:
            audience.join(subscription, form, ids=False)
    except EngineError:
        audience.consumer.close()
        raise
    if not is_sow:
        audience.follow(pattern, values)
    elif not wishes:
        audience.consumer.give_up(CloseReason.UNSUBSCRIBED)
    return _served(gateway, audience)


def _served(gateway: Gateway, audience: Audience, *, id_text: str = "") -> EventStream:
    hello = audience.hello(id_text=id_text)
    return EventStream(audience.consumer, audience.styles, hello, gateway.settings)


def _stopping() -> Response:
    return refusal_stream(Problem("not-ready", "The gateway is shutting down."))


def _last_event_id(request: Request, values: Mapping[str, str]) -> Bookmark | None:
    """The header wins over the query: a browser's reconnect knows better than its address."""
    text = header_value(request.scope, "last-event-id", "bookmark-invalid")
    text = text or values.get("last_event_id")
    if not text:
        return None
    if not _ID.fullmatch(text):
        raise Problem("bookmark-invalid", "An event id is at most 128 of A-Z a-z 0-9 . _ ~ -.")
    try:
        return Bookmark.parse(text)
    except BookmarkInvalid:
        return Bookmark(UNKNOWN_EPOCH, 0)  # continued by a snapshot, as any unknown id
