"""`/v1/topics/{topic}/messages`: publishing, and reading the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from app.archive.archive import begun
from app.entry import Entry
from app.envelope import EnvelopeWriter
from app.gateway import Gateway, gateway_of
from app.ingest import Form, check_filler, is_pipeline
from app.openapi import described
from app.pipelines import told_topic_name
from app.problems import Problem
from app.publish_request import (
    BYTES,
    JSON,
    MEDIA_TYPES,
    MERGE_PATCH,
    NDJSON,
    TEXT,
    PublishRequest,
)
from app.query import integer, query_values, read_body, topic_name
from app.stores.store import Appended
from conflation.bookmark import Bookmark
from conflation.definition import Kind
from conflation.frame import Frame
from conflation.subscription import Shown
from conflation.topics.topic import Topic

ACK = "processed, or persisted: survives the process; every answer is both where it can be"
JOURNAL_LIMIT = 1_000
JOURNAL_LIMIT_MAX = 100_000
LINES_AT_ONCE = 500

_OF_JSON = (JSON, NDJSON, MERGE_PATCH)
_TAKEN = {Kind.JSON: _OF_JSON, Kind.SERIES: _OF_JSON, Kind.TEXT: (TEXT,), Kind.BINARY: (BYTES,)}
CREATED = 201

router = APIRouter(tags=["messages"])


@router.post(
    "/v1/topics/{topic}/messages",
    summary="Publish messages, all or none",
    openapi_extra=described(
        query={
            "ack": ACK,
            "delta": "true: each is merged into the record that its key fields name",
            "format": "value, or envelope: each is {value}, or {key, reason} for a removal",
        },
        header={
            "Idempotency-Key": "Makes a retry safe for 24 hours: it is answered as the first time",
            "Tidegate-Producer": "Name of a numbered producer, or of whoever keeps a stage",
            "Tidegate-Sequence": "Its number; one not above its highest publishes nothing",
            "Tidegate-Stage": "Keep the messages aside under this name until a commit (201)",
            "Tidegate-Conflate": "never: these messages are not to be conflated",
        },
        body=MEDIA_TYPES,
    ),
)
async def publish(request: Request) -> Response:
    """One message, or NDJSON. Answers with the bookmarks of the first and the last."""
    gateway, name = gateway_of(request), told_topic_name(request.scope)
    asked = PublishRequest.read(request.scope, gateway.store)
    body = await read_body(request, gateway.settings.request_bytes_max)
    entry = await gateway.catalog.seek(name)
    # A topic that a pipeline fills was declared, or made by it: it is gone, and stays so.
    may_make = gateway.settings.auto_create_topics and not is_pipeline(asked.producer)
    if entry is None and not may_make:
        raise Problem("topic-unknown", "There is no topic of this name.")
    if entry is None:  # nothing is made for a request that is refused
        _check_taken(Kind.JSON, asked.media_type)
        await gateway.ingest.check_plain(body, asked.form)
        entry = await gateway.catalog.get_or_create(name)
    retry = await asked.retry(body)

    async def taken(entry: Entry) -> Response:
        check_filler(entry, asked.producer)
        _check_taken(entry.document.kind, asked.media_type)
        if asked.stage is not None:
            return await _staged(gateway, entry, body, asked.form, asked.stage, asked.producer)
        appended = await gateway.ingest.take(entry, body, asked.form, asked.numbered, retry)
        return published(entry, appended)

    return await gateway.catalog.by_what_holds(entry, taken)


async def _staged(
    gateway: Gateway, entry: Entry, body: bytes, form: Form, stage: str, producer: str | None
) -> Response:
    messages = await gateway.ingest.check(entry, body, form)
    await gateway.ingest.stage(entry, messages, stage, producer)
    kept = {"topic": entry.record.name, "stage": stage, "messages": len(messages)}
    return Response(msgspec.json.encode(kept), CREATED, media_type=JSON)


def published(entry: Entry, appended: Appended) -> Response:
    """The answer to a publish: of a retry the places of the first time, if they are known."""
    epoch, is_known = entry.record.epoch, appended.first > 0
    answer = {
        "topic": entry.record.name,
        "messages": appended.last - appended.first + 1 if is_known else 0,
        "first": str(Bookmark(epoch, appended.first)) if is_known else None,
        "last": str(Bookmark(epoch, appended.last)) if is_known else None,
        "duplicate": appended.duplicate,
    }
    return Response(msgspec.json.encode(answer), media_type=JSON)


@router.get(
    "/v1/topics/{topic}/messages",
    summary="The journal as NDJSON envelopes",
    openapi_extra=described(
        query={"from": "epoch, or a bookmark: what is after it", "limit": "At most so many"}
    ),
)
async def read_journal(request: Request) -> Response:
    """Messages after `from`, oldest first; 410 when they are no longer kept."""
    gateway = gateway_of(request)
    name = topic_name(request.scope)
    values = query_values(request.scope, {"from": "bookmark-invalid", "limit": "options-invalid"})
    limit = integer(
        values.get("limit", str(JOURNAL_LIMIT)), least=1, most=JOURNAL_LIMIT_MAX,
        code="options-invalid", what="limit",
    )  # fmt: skip
    await gateway.catalog.seek(name)
    kind = gateway.catalog.get(name).document.kind
    start = values.get("from", "epoch")
    bookmark = None if start == "epoch" else Bookmark.parse(start)
    if bookmark is not None:
        await gateway.catch_up(name, bookmark)
    topic = await _looked_back(gateway, name, bookmark)
    writer = EnvelopeWriter(name, topic.epoch, "publish", kind=kind, shown=Shown(timestamp=True))
    seen = topic.bookmark(topic.beginning) if bookmark is None else bookmark
    if gateway.archive and topic.reaches(seen) and not topic.journal_reaches(seen):
        through = min(seen.offset + limit, topic.head)
        pieces = await begun(gateway.archive.messages(topic, kind, seen.offset, through))
        headers = {"Tidegate-Bookmark": str(topic.bookmark(through))}
        return StreamingResponse(_all_lines(writer, pieces), media_type=NDJSON, headers=headers)
    frames = topic.since(bookmark, limit)
    last = frames[-1].offset if frames else topic.head if start == "epoch" else None
    headers = {"Tidegate-Bookmark": start if last is None else str(topic.bookmark(last))}
    return StreamingResponse(_lines(writer, frames), media_type=NDJSON, headers=headers)


async def _looked_back(gateway: Gateway, name: str, bookmark: Bookmark | None) -> Topic:
    """The topic, with what an archive has of it where its journal is not enough."""
    topic = gateway.driver.engine.topic(name)
    if bookmark is None or not topic.journal_reaches(bookmark):
        await gateway.look_back(name)
    return gateway.driver.engine.topic(name)


async def _all_lines(
    writer: EnvelopeWriter, pieces: AsyncIterator[Sequence[Frame]]
) -> AsyncIterator[bytes]:
    async for frames in pieces:
        for lines in _lines(writer, frames):
            yield lines


def _lines(writer: EnvelopeWriter, frames: Sequence[Frame]) -> Iterator[bytes]:
    for start in range(0, len(frames), LINES_AT_ONCE):
        piece = frames[start : start + LINES_AT_ONCE]
        yield b"".join(writer.envelope(frame) + b"\n" for frame in piece)


def _check_taken(kind: Kind, media_type: str) -> None:
    """Whether topics of a type take this media type."""
    if media_type not in _TAKEN[kind]:
        taken = ", ".join(_TAKEN[kind])
        raise Problem("unsupported-media-type", f"A topic of type {kind} takes {taken}.")
