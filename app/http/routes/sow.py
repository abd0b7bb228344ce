"""`/v1/topics/{topic}/sow`: the newest message of each key, as it is now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from tidegate.app.access.entitlement import entitlement_of
from tidegate.app.archive.as_of import PastRecords, records_as_of, time_of
from tidegate.app.gateway import Gateway
from tidegate.app.http.answers import json_answer
from tidegate.app.http.formats.choice import ARROW, CSV, VARY, chosen_format, encoder_for
from tidegate.app.http.formats.columns import Kinds, declared_fields
from tidegate.app.http.formats.records import VALUE, Text, encoded
from tidegate.app.http.openapi import BOOKMARK, answer, lines_of, name_of, problems, ref
from tidegate.app.http.parameters import STRICT, TopicPath, record_key_in_path
from tidegate.app.http.publish_request import refuse_retry_key, removable_topic_name
from tidegate.app.http.requests import JSON, NDJSON, require_accept
from tidegate.app.http.routes.models.messages import ROW, Deleted, Envelope
from tidegate.app.http.scope import gateway_of, grants_in
from tidegate.app.parameters import Parameters, text, word
from tidegate.app.refusals import Refused
from tidegate.app.streams.encoding import EnvelopeWriter, json_value
from tidegate.app.topics.query import SowQuery, matching
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.boards.board import Board
from tidegate.conflation.definition import Definition, Kind
from tidegate.conflation.frame import Frame, RemovalReason
from tidegate.conflation.options.syntax import SKIP_N_MAX, TOP_N_MAX
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import canonical_key, group_key
from tidegate.keys.text.bookmark import Bookmark

EVERYTHING = SowQuery()
ENVELOPE = ("topic", "op", "key", "bookmark", "value")
"""The members of an envelope here."""

router = APIRouter(
    tags=["state of the world"], dependencies=STRICT, generate_unique_id_function=name_of
)


def _count(least: int, most: int) -> dict[str, Any]:
    """Describe a number that the query reads by itself."""
    return {"type": "integer", "minimum": least, "maximum": most}


class RecordForm(Parameters):
    """The form of a record in the answer."""

    form: Annotated[
        str,
        word("format", ("value", "envelope")),
        Field(alias="format", description="Format of a row"),
    ] = "value"


class Asked(RecordForm):
    """A choice of records, their order, and the time for which they are shown."""

    filter: Annotated[
        str | None, text("filter-invalid"), Field(description="Only records that match")
    ] = None
    order_by: Annotated[str | None, text(), Field(description="/a DESC,/b")] = None
    top_n: Annotated[
        str | None, text(**_count(1, TOP_N_MAX)), Field(description="At most this many records")
    ] = None
    skip_n: Annotated[
        str | None, text(**_count(0, SKIP_N_MAX)), Field(description="Skip this many records first")
    ] = None
    select: Annotated[str | None, text(), Field(description="[-/,+/a]: only these fields")] = None
    as_of: Annotated[
        str | None,
        text(),
        Field(description="Records as of this time: ISO 8601, or milliseconds since 1970"),
    ] = None


class RecordsToDelete(Parameters):
    """The records to delete: by filter or by key."""

    filter: Annotated[
        str | None, text("filter-invalid"), Field(description="Delete the records that match")
    ] = None
    key: Annotated[
        str | None,
        text("key-invalid"),
        Field(description='Delete the record of this key: ["IBM",7]'),
    ] = None


_ROW = {"anyOf": [ref(Envelope), ROW]}
_ROWS = {
    JSON: {"schema": {"type": "array", "items": _ROW}},
    **lines_of(_ROW),
    CSV: {"schema": {"type": "string"}},
    ARROW: {"schema": {"type": "string", "format": "binary"}},
}
_READ = problems("topic-unknown", "topic-invalid", "options-invalid", "filter-invalid")


@router.get(
    "/v1/topics/{topic}/sow",
    summary="The newest message of each key",
    response_class=Response,
    responses={
        200: answer("The records, as Accept asks", headers=BOOKMARK, content=_ROWS),
        **_READ,
        **problems("bookmark-expired"),
    },
)
async def read_sow(
    request: Request, topic: TopicPath, asked: Annotated[Asked, Query()]
) -> Response:
    """Return rows as NDJSON, or as a JSON array, CSV or an Arrow stream where Accept asks for it.

    410 where neither journal nor archive reaches back to the time that is asked for.
    """
    media_type = chosen_format(request.scope)
    gateway, entry = await _entry(request, topic)
    held, board = _records(gateway, entry)
    kind, characters_max = entry.document.kind, gateway.settings.options_characters_max
    query = SowQuery.read(asked.given(), kind, characters_max)
    entitlement = entitlement_of(grants_in(request.scope), held.definition, topic)
    query = query.narrowed(entitlement)
    # Taken in one step of the loop, so the rows are a state that the topic had, and the bookmark is
    # its place: subscribing from there misses nothing.
    past = PastRecords(held.bookmark(held.head), board.frames())
    if asked.as_of is not None:
        time_ms, now_ms = time_of(asked.as_of), gateway.driver.wall_ms()
        await gateway.writer.close_past(entry, time_ms)
        held, _ = _records(gateway, entry)  # it may have been read again from the bus
        past = await records_as_of(held, kind, time_ms, now_ms, gateway.archive)
    write = _text_of(entry, past.bookmark, asked.form, query)
    headers = {"Tidegate-Bookmark": str(past.bookmark), **VARY}
    rows = await query.rows(past.records, held.name)
    # A subject that sees only a part of the topic may know no more of the definition than the key.
    schema = None if entitlement is not None or entry.schema is None else entry.schema.document
    known = _known_columns(held.definition, schema, asked.form, query)
    encoder = await encoder_for(media_type, rows, write, known)
    body = encoded(encoder, rows, write)
    return StreamingResponse(body, media_type=encoder.content_type, headers=headers)


@router.get(
    "/v1/topics/{topic}/sow/{record_key:path}",
    summary="The newest message of one key",
    response_class=Response,
    responses={
        200: answer("The record", _ROW, headers=BOOKMARK),
        **_READ,
        **problems("record-unknown", "key-invalid"),
    },
)
async def read_record(
    request: Request,
    topic: TopicPath,
    record_key: Annotated[str, Depends(record_key_in_path)],
    asked: Annotated[RecordForm, Query()],
) -> Response:
    """Return the record whose key is the percent-encoded JSON array in the path."""
    require_accept(request.scope, NDJSON, JSON)
    gateway, entry = await _entry(request, topic)
    held, board = _records(gateway, entry)
    entitlement = entitlement_of(grants_in(request.scope), held.definition, topic)
    query = EVERYTHING.narrowed(entitlement)
    write = _text_of(entry, held.bookmark(held.head), asked.form, query)
    # A view has groups, and any value may be a field of those.
    key_of = canonical_key if entry.document.source is None else group_key
    frame = board.get(key_of(record_key.encode()))
    # One that may not be seen is not there.
    if frame is None or not await query.rows([frame], held.name):
        raise Refused("record-unknown", "There is no record of this key.")
    # Of the record and not of the topic: a client may hold several records, each of its own age.
    headers = {"Tidegate-Bookmark": str(held.bookmark(frame.offset))}
    return Response(write(frame), media_type=JSON, headers=headers)


@router.delete(
    "/v1/topics/{topic}/sow",
    summary="Delete records",
    responses={
        200: answer("How many", ref(Deleted)),
        **_READ,
        **problems("message-invalid", "filter-invalid", "key-invalid", "topic-read-only"),
    },
)
async def delete_records(
    request: Request, topic: TopicPath, asked: Annotated[RecordsToDelete, Query()]
) -> Response:
    """Delete records; answer `{"deleted": n}`. Each removal has an offset, as a message has."""
    removable_topic_name(request.scope)
    values = asked.given()
    refuse_retry_key(request.scope, "a removal goes in several steps")
    if len(values) != 1:
        raise Refused("options-invalid", "Either filter or key says what to delete.")
    gateway, entry = await _entry(request, topic)

    # By epoch: where the bus has lost removals, the same records are removed again.
    counts = Counter[str]()

    # Tried again by a definition that another gateway has just changed: the key may be another.
    async def removed(entry: CatalogTopic) -> int:
        # A record that another gateway has just acknowledged may not be on the board here yet.
        await gateway.writer.catch_up(entry)
        records, epoch = await _named(gateway, entry, values), entry.record.epoch
        async for count in gateway.writer.removals(entry, records, RemovalReason.DELETED):
            counts[epoch] += count
        return counts[epoch]

    deleted = await gateway.catalog.with_newest_definition(entry, removed)
    if not deleted:  # an earlier attempt may have removed them, and its removal is not kept yet
        await gateway.store.settle()
    return json_answer({"deleted": deleted})


async def _named(
    gateway: Gateway, entry: CatalogTopic, values: Mapping[str, str]
) -> Sequence[Frame]:
    """Return the records that a key or a filter names.

    Raises:
        Refusal: topic-read-only, key-invalid, filter-invalid.
    """
    if entry.document.source is not None:
        raise Refused("topic-read-only", "The topic is filled from another; delete there.")
    topic, board = _records(gateway, entry)
    if "key" in values:
        found = board.get(_whole_key(entry, values["key"]))
        return [] if found is None else [found]
    kind, characters_max = entry.document.kind, gateway.settings.options_characters_max
    wanted = SowQuery.read(values, kind, characters_max).filter
    # An empty filter elsewhere matches all; here it is more likely a slip, and deletes.
    if wanted is None:
        raise Refused("filter-invalid", "The filter is empty; TRUE matches all.", position=0)
    return await matching(board.frames(), wanted, topic.name)


def _whole_key(entry: CatalogTopic, text: str) -> str:
    # A key of another width matches no record: 0 deleted would hide the slip.
    found, width = canonical_key(text.encode()), len(entry.document.key_spec.paths)
    if width and len(msgspec.json.decode(found)) != width:
        raise Refused("key-invalid", f"The topic's key has {width} field{'s' * (width > 1)}.")
    return found


async def _entry(request: Request, name: str) -> tuple[Gateway, CatalogTopic]:
    gateway = gateway_of(request)
    await gateway.catalog.seek(name)
    return gateway, gateway.catalog.get(name)


def _records(gateway: Gateway, entry: CatalogTopic) -> tuple[Topic, Board]:
    topic = gateway.driver.engine.topic(entry.record.name)
    # Not 404: the topic is there, and only the query does not fit it.
    if topic.sow is None:
        raise Refused("options-invalid", "The topic keeps no records: it has no key.")
    return topic, topic.sow.board


def _text_of(entry: CatalogTopic, place: Bookmark, form: str, query: SowQuery = EVERYTHING) -> Text:
    """Return the function that writes a row, by the parameters `format` and `select`."""
    kind = entry.document.kind
    if form == "value":
        return lambda row: json_value(query.shown(row), kind)
    writer = EnvelopeWriter(entry.record.name, place.epoch, "snapshot", kind=kind)
    return lambda row: writer.envelope(query.shown(row))


def _known_columns(
    definition: Definition, schema: object, form: str, query: SowQuery
) -> dict[str, Kinds]:
    """Return the columns that an answer has whatever the records are: of the key and the schema."""
    if form == "envelope":
        return dict.fromkeys(ENVELOPE, frozenset())
    if definition.kind in (Kind.TEXT, Kind.BINARY):
        return {VALUE: frozenset({str})}
    steps = [path.steps[0] for path in definition.key_spec.paths if len(path.steps) == 1]
    key = {step: frozenset[type]() for step in steps if isinstance(step, str)}
    found = key | declared_fields(schema)
    if query.select is None:
        return found
    return {name: it for name, it in found.items() if query.select.keeps(FieldPath((name,)))}
