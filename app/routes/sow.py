"""`/v1/topics/{topic}/sow`: the newest message of each key, as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Scope

from app.envelope import EnvelopeWriter
from app.gateway import gateway_of
from app.openapi import TOPIC, described
from app.problems import Problem
from app.query import (
    accepts,
    one_of,
    prefers,
    query_values,
    record_key_text,
    require_accept,
    topic_name,
)
from app.routes.messages import JSON, LINES_AT_ONCE, NDJSON
from conflation.board import Board
from conflation.frame import Frame
from conflation.topic import Topic
from keys.canonical import canonical_key

_LATER = {
    "filter": "filter-invalid",
    "order_by": "options-invalid",
    "top_n": "options-invalid",
    "skip_n": "options-invalid",
    "select": "options-invalid",
}

router = APIRouter(tags=["state of the world"])


_FORMAT = {"format": "value, or envelope"}


@router.get(
    "/v1/topics/{topic}/sow",
    summary="The newest message of each key",
    openapi_extra=described(query=_FORMAT),
)
async def read_sow(request: Request) -> Response:
    """Rows as NDJSON, or a JSON array where Accept asks for application/json."""
    topic, board, form = _asked(request)
    rows = board.live()
    writer = EnvelopeWriter(topic.name, topic.epoch, "snapshot") if form == "envelope" else None
    as_array = _wants_array(request.scope)
    lines = _array(rows, writer) if as_array else _lines(rows, writer)
    headers = {"Tidegate-Bookmark": str(topic.bookmark(topic.head))}
    return StreamingResponse(lines, media_type=JSON if as_array else NDJSON, headers=headers)


@router.get(
    "/v1/topics/{topic}/sow/{record_key:path}",
    summary="The newest message of one key",
    openapi_extra=described(
        path={**TOPIC, "record_key": 'JSON array of the key\'s fields: ["IBM",7]'}, query=_FORMAT
    ),
)
async def read_record(request: Request) -> Response:
    """The record whose key is the percent-encoded JSON array in the path."""
    topic, board, form = _asked(request)
    frame = board.get(canonical_key(record_key_text(request.scope).encode()))
    if frame is None:
        raise Problem("record-unknown", "There is no record of this key.")
    writer = EnvelopeWriter(topic.name, topic.epoch, "snapshot") if form == "envelope" else None
    headers = {"Tidegate-Bookmark": str(topic.bookmark(frame.offset))}
    return Response(_text(frame, writer), media_type=JSON, headers=headers)


def _asked(request: Request) -> tuple[Topic, Board, str]:
    gateway, name = gateway_of(request), topic_name(request.scope)
    require_accept(request.scope, NDJSON, JSON)
    values = query_values(request.scope, {"format": "options-invalid", **_LATER})
    for parameter, code in _LATER.items():
        if parameter in values:
            raise Problem(code, f"{parameter} is not available yet.")
    form = one_of(
        values.get("format", "value"), ("value", "envelope"), code="options-invalid", what="format"
    )
    gateway.catalog.get(name)
    topic = gateway.driver.engine.topic(name)
    if topic.sow is None:
        raise Problem("options-invalid", "The topic has no key, so it keeps no records.")
    return topic, topic.sow.board, form


def _wants_array(scope: Scope) -> bool:
    """NDJSON, unless only JSON is taken."""
    prefers_json = prefers(scope, JSON) and not prefers(scope, NDJSON)
    return accepts(scope, JSON) and (prefers_json or not accepts(scope, NDJSON))


def _text(frame: Frame, writer: EnvelopeWriter | None) -> bytes:
    return frame.payload if writer is None else writer.envelope(frame)


def _lines(rows: Sequence[Frame], writer: EnvelopeWriter | None) -> Iterator[bytes]:
    for start in range(0, len(rows), LINES_AT_ONCE):
        piece = rows[start : start + LINES_AT_ONCE]
        yield b"".join(_text(frame, writer) + b"\n" for frame in piece)


def _array(rows: Sequence[Frame], writer: EnvelopeWriter | None) -> Iterator[bytes]:
    lead = b"["
    for start in range(0, len(rows), LINES_AT_ONCE):
        piece = rows[start : start + LINES_AT_ONCE]
        yield lead + b",".join(_text(frame, writer) for frame in piece)
        lead = b","
    yield b"]" if rows else b"[]"
