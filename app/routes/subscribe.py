"""`/v1/topics/{topic}/subscribe`: a stream of server-sent events."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from fastapi import APIRouter, Request, Response

from app.gateway import Gateway, gateway_of
from app.openapi import described
from app.problems import Problem
from app.query import (
    checked_characters,
    content_type,
    header_value,
    one_of,
    query_values,
    read_body,
    require_accept,
    topic_name,
)
from app.sse import Format, event
from app.stream import EventStream, refusal_stream
from conflation.bookmark import Bookmark
from conflation.errors import BookmarkInvalid, LimitReached
from conflation.options import Options
from conflation.subscription import Command, Subscription, decide
from keys.errors import JsonInvalid
from keys.jsontext import check_json

SUBSCRIPTION_NAME = "s1"
REQUEST_BYTES_MAX = 64 << 10
JSON = "application/json"
UNKNOWN_EPOCH = "unknown"

_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
PARAMETERS: Mapping[str, str] = {
    "options": "options-invalid",
    "filter": "filter-invalid",
    "order_by": "options-invalid",
    "command": "options-invalid",
    "format": "options-invalid",
    "last_event_id": "bookmark-invalid",
}

router = APIRouter(tags=["subscribing"])
_STREAM: dict[int | str, dict[str, object]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {}}},
    204: {"description": "The subscription has ended; do not come back"},
}


_MEANINGS = {
    "options": "conflation=1s,conflation_key=[/a],pace=batch",
    "command": "subscribe, sow, or sow_and_subscribe",
    "format": "value, envelope, or batch",
    "last_event_id": "Continue behind this event, as Last-Event-ID",
}


@router.get(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe: a stream of server-sent events",
    responses=_STREAM,
    openapi_extra=described(query=_MEANINGS, header={"Last-Event-ID": "Continue behind it"}),
)
async def subscribe(request: Request) -> Response:
    """A stream of one subscription; parameters in the query."""
    name = topic_name(request.scope)
    require_accept(request.scope, "text/event-stream")
    return _stream(request, name, query_values(request.scope, PARAMETERS))


@router.post(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe, the parameters as a JSON object of texts",
    responses=_STREAM,
    openapi_extra=described(header={"Last-Event-ID": "Continue behind it"}, body=[JSON]),
)
async def subscribe_by_post(request: Request) -> Response:
    """The same, with the parameters as a JSON object of texts."""
    name = topic_name(request.scope)
    require_accept(request.scope, "text/event-stream")
    query_values(request.scope, {})
    content_type(request.scope, (JSON,))
    body = await read_body(request, REQUEST_BYTES_MAX)
    return _stream(request, name, _posted(body))


def _posted(body: bytes) -> dict[str, str]:
    try:
        check_json(body)
    except JsonInvalid as error:
        raise Problem("options-invalid", f"{error.detail}.", position=error.position) from None
    document = msgspec.json.decode(body)
    if not isinstance(document, dict):
        raise Problem("options-invalid", "The request is a JSON object.")
    for name, value in document.items():
        if name not in PARAMETERS:
            known = ", ".join(PARAMETERS)
            raise Problem("options-invalid", f"Unknown field; known: {known}.")
        if not isinstance(value, str):
            raise Problem(PARAMETERS[name], f"{name} is a text.", pointer=f"/{name}")
    return document


def _stream(request: Request, name: str, values: Mapping[str, str]) -> Response:
    gateway = gateway_of(request)
    resume = _last_event_id(request, values)
    is_gone = gateway.catalog.find(name) is None
    if is_gone and resume is not None and gateway.catalog.has_ended(resume.epoch):
        return Response(status_code=204)  # as its stream has said
    subscription, form = _decided(gateway, name, values, resume)
    if subscription.command is Command.SOW and resume is not None:
        topic = gateway.driver.engine.topic(name)
        if resume.epoch == topic.epoch and resume.offset <= topic.head:
            return Response(status_code=204)  # a finished sow: the browser need not come back
    if gateway.stopping:
        return refusal_stream(Problem("not-ready", "The gateway is shutting down."))
    session = gateway.new_session_id()
    try:
        consumer = gateway.driver.open(session, SUBSCRIPTION_NAME, subscription)
    except LimitReached as error:
        return refusal_stream(Problem("limit-reached", f"{error.detail}."))
    hello = _hello(gateway, session, subscription, consumer.cut)
    return EventStream(consumer, form, hello, gateway.settings)


def _decided(
    gateway: Gateway, name: str, values: Mapping[str, str], resume: Bookmark | None
) -> tuple[Subscription, Format]:
    characters_max = gateway.settings.options_characters_max
    for parameter in ("options", "filter", "order_by"):
        code = PARAMETERS[parameter]
        text = checked_characters(values.get(parameter, ""), characters_max, code, parameter)
        if parameter != "options" and text:
            raise Problem(code, f"{parameter} is not available yet.", position=0)
    form = Format(
        one_of(values.get("format", "value"), tuple(Format), code="options-invalid", what="format")
    )
    entry = gateway.catalog.get(name)
    subscription = decide(
        name,
        entry.document.key_spec,
        Options.parse(values.get("options", "")),
        command=values.get("command"),
        default_pace=gateway.settings.default_pace,
        resume=resume,
        tells_first=form is not Format.VALUE,
    )
    return subscription, form


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


def _hello(gateway: Gateway, session: str, subscription: Subscription, cut: Bookmark) -> bytes:
    """Without a snapshot to come, it has an id: who leaves now can come back to this place."""
    begins_empty = subscription.command is Command.SUBSCRIBE and subscription.resume is None
    granted = str(subscription.lane_id)
    document = {
        "session": session,
        "epoch": gateway.driver.engine.topic(subscription.topic).epoch,
        "heartbeat_ms": gateway.settings.heartbeat.ms,
        "subscriptions": [
            {
                "sub": SUBSCRIPTION_NAME,
                "topic": subscription.topic,
                "options": granted,
                "lane": f"{subscription.topic}?{granted}",
            }
        ],
    }
    return event("hello", document, id_text=str(cut) if begins_empty else "")
