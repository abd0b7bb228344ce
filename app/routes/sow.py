"""`/v1/topics/{topic}/sow`: the newest message of each key, as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Scope

from app.archive.as_of import Past, records_as_of, time_of
from app.entry import Entry
from app.envelope import EnvelopeWriter, json_value
from app.gateway import Gateway, gateway_of
from app.openapi import TOPIC, described
from app.problems import Problem
from app.publish_request import JSON, NDJSON, refuse_retry_key
from app.query import (
    accepts,
    one_of,
    prefers,
    query_values,
    record_key_text,
    require_accept,
    topic_name,
    writable_topic_name,
)
from app.routes.messages import LINES_AT_ONCE
from app.sow_query import PARAMETERS, SowQuery, matching
from conflation.boards.board import Board
from conflation.bookmark import Bookmark
from conflation.frame import Frame, Gone
from conflation.topics.topic import Topic
from keys.canonical import canonical_key, group_key

Text = Callable[[Frame], bytes]

EVERYTHING = SowQuery()

router = APIRouter(tags=["state of the world"])

_FORMAT = {"format": "value, or envelope"}
_AS_OF = {"as_of": "As they were at this time: ISO 8601, or milliseconds since 1970"}
_READ = {"format": "options-invalid", "as_of": "options-invalid", **PARAMETERS}
_QUERY = {
    "filter": "Only records that match",
    "order_by": "/a DESC,/b",
    "top_n": "At most so many",
    "skip_n": "Behind the first so many",
    "select": "[-/,+/a]: only these fields",
}


@router.get(
    "/v1/topics/{topic}/sow",
    summary="The newest message of each key",
    openapi_extra=described(query={**_QUERY, **_FORMAT, **_AS_OF}),
)
async def read_sow(request: Request) -> Response:
    """Rows as NDJSON, or a JSON array where Accept asks for application/json.

    410 where neither journal nor archive reaches back to the time that is asked for.
    """
    require_accept(request.scope, NDJSON, JSON)
    values = query_values(request.scope, _READ)
    gateway, entry = await _entry(request)
    topic, board = _records(gateway, entry)
    kind, characters_max = entry.document.kind, gateway.settings.options_characters_max
    query = SowQuery.read(values, kind, characters_max)
    past = Past(topic.bookmark(topic.head), board.live())
    if "as_of" in values:
        now_ms, archive = gateway.driver.wall_ms(), gateway.archive
        past = await records_as_of(topic, kind, time_of(values["as_of"]), now_ms, archive)
    text = _text_of(entry, past.place, values, query)
    headers = {"Tidegate-Bookmark": str(past.place)}
    rows = await query.rows(past.records, topic.name)
    as_array = _wants_array(request.scope)
    lines = _array(rows, text) if as_array else _lines(rows, text)
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
    require_accept(request.scope, NDJSON, JSON)
    values = query_values(request.scope, {"format": "options-invalid"})
    gateway, entry = await _entry(request)
    topic, board = _records(gateway, entry)
    text = _text_of(entry, topic.bookmark(topic.head), values)
    key_of = canonical_key if entry.document.source is None else group_key
    frame = board.get(key_of(record_key_text(request.scope).encode()))
    if frame is None:
        raise Problem("record-unknown", "There is no record of this key.")
    headers = {"Tidegate-Bookmark": str(topic.bookmark(frame.offset))}
    return Response(text(frame), media_type=JSON, headers=headers)


@router.delete(
    "/v1/topics/{topic}/sow",
    summary="Delete records",
    openapi_extra=described(
        query={"filter": "Those that match", "key": 'The one of this key: ["IBM",7]'}
    ),
)
async def delete_records(request: Request) -> Response:
    """`{"deleted": n}`; each removal has its place in the topic's sequence, as a message has."""
    writable_topic_name(request.scope)
    values = query_values(request.scope, {"filter": "filter-invalid", "key": "key-invalid"})
    refuse_retry_key(request.scope, "a removal goes in several steps")
    if len(values) != 1:
        raise Problem("options-invalid", "Either filter or key says what to delete.")
    gateway, entry = await _entry(request)

    async def removed(entry: Entry) -> int:
        records = await _named(gateway, entry, values)
        return await gateway.writer.remove(entry, records, Gone.DELETED)

    deleted = await gateway.catalog.by_what_holds(entry, removed)
    return Response(msgspec.json.encode({"deleted": deleted}), media_type=JSON)


async def _named(gateway: Gateway, entry: Entry, values: Mapping[str, str]) -> Sequence[Frame]:
    """The records that a key or a filter names.

    Raises:
        Problem, KeysError: topic-read-only, key-invalid, filter-invalid.
    """
    if entry.document.source is not None:
        raise Problem("topic-read-only", "The topic is filled from another; delete there.")
    topic, board = _records(gateway, entry)
    if "key" in values:
        found = board.get(_whole_key(entry, values["key"]))
        return [] if found is None else [found]
    kind, characters_max = entry.document.kind, gateway.settings.options_characters_max
    wanted = SowQuery.read(values, kind, characters_max).filter
    if wanted is None:
        raise Problem("filter-invalid", "The filter is empty; TRUE matches all.", position=0)
    return await matching(board.live(), wanted, topic.name)


def _whole_key(entry: Entry, text: str) -> str:
    found, width = canonical_key(text.encode()), len(entry.document.key_spec.paths)
    if width and len(msgspec.json.decode(found)) != width:
        raise Problem("key-invalid", f"The topic's key has {width} field{'s' * (width > 1)}.")
    return found


async def _entry(request: Request) -> tuple[Gateway, Entry]:
    gateway, name = gateway_of(request), topic_name(request.scope)
    await gateway.catalog.seek(name)
    return gateway, gateway.catalog.get(name)


def _records(gateway: Gateway, entry: Entry) -> tuple[Topic, Board]:
    topic = gateway.driver.engine.topic(entry.record.name)
    if topic.sow is None:
        raise Problem("options-invalid", "The topic keeps no records: it has no key.")
    return topic, topic.sow.board


def _text_of(
    entry: Entry, place: Bookmark, values: Mapping[str, str], query: SowQuery = EVERYTHING
) -> Text:
    """How a row is written, by the parameters `format` and `select`."""
    form = one_of(
        values.get("format", "value"), ("value", "envelope"), code="options-invalid", what="format"
    )
    kind = entry.document.kind
    if form == "value":
        return lambda row: json_value(query.shown(row), kind)
    writer = EnvelopeWriter(entry.record.name, place.epoch, "snapshot", kind=kind)
    return lambda row: writer.envelope(query.shown(row))


def _wants_array(scope: Scope) -> bool:
    """NDJSON, unless only JSON is taken."""
    prefers_json = prefers(scope, JSON) and not prefers(scope, NDJSON)
    return accepts(scope, JSON) and (prefers_json or not accepts(scope, NDJSON))


def _lines(rows: Sequence[Frame], text: Text) -> Iterator[bytes]:
    for start in range(0, len(rows), LINES_AT_ONCE):
        yield b"".join(text(frame) + b"\n" for frame in rows[start : start + LINES_AT_ONCE])


def _array(rows: Sequence[Frame], text: Text) -> Iterator[bytes]:
    lead = b"["
    for start in range(0, len(rows), LINES_AT_ONCE):
        yield lead + b",".join(map(text, rows[start : start + LINES_AT_ONCE]))
        lead = b","
    yield b"]" if rows else b"[]"
