"""`/v1/topics/{topic}/messages`: publishing, and reading the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Scope

from app.envelope import EnvelopeWriter
from app.gateway import Gateway, gateway_of
from app.openapi import described
from app.problems import Problem
from app.query import (
    content_type,
    header_value,
    integer,
    one_of,
    query_values,
    read_body,
    topic_name,
    writable_topic_name,
)
from app.store import Producer
from conflation.bookmark import Bookmark
from conflation.frame import Frame

NDJSON = "application/x-ndjson"
JSON = "application/json"
SEQUENCE_MAX = 2**63 - 1
JOURNAL_LIMIT = 1_000
JOURNAL_LIMIT_MAX = 100_000
LINES_AT_ONCE = 500

_LATER_HEADERS = ("tidegate-stage", "idempotency-key", "tidegate-conflate")

router = APIRouter(tags=["messages"])


@router.post(
    "/v1/topics/{topic}/messages",
    summary="Publish messages, all or none",
    openapi_extra=described(
        query={"ack": "processed: it has its position and the state of the world shows it"},
        header={
            "Tidegate-Producer": "Name of a numbered producer",
            "Tidegate-Sequence": "Its number; one not above its highest publishes nothing",
        },
        body=[JSON, NDJSON],
    ),
)
async def publish(request: Request) -> Response:
    """One JSON value, or NDJSON. Answers with the bookmarks of the first and the last."""
    gateway, name = gateway_of(request), writable_topic_name(request.scope)
    media_type = content_type(request.scope, (JSON, NDJSON))
    _check_query(gateway, request.scope)
    producer = _producer(request.scope)
    body = await read_body(request, gateway.settings.request_bytes_max)
    lined = media_type == NDJSON
    entry = gateway.catalog.find(name)
    if entry is None and not gateway.settings.auto_create_topics:
        raise Problem("topic-unknown", "There is no topic of this name.")
    if entry is None:  # nothing is made for a request that is refused
        await gateway.ingest.check_plain(body, lined=lined)
        entry = await gateway.catalog.get_or_create(name)
    messages = await gateway.ingest.check(entry, body, lined=lined)
    appended = await gateway.ingest.publish(entry, messages, producer)
    epoch, published = entry.record.epoch, not appended.duplicate
    answer = {
        "topic": name,
        "messages": len(messages) if published else 0,
        "first": str(Bookmark(epoch, appended.first)) if published else None,
        "last": str(Bookmark(epoch, appended.last)) if published else None,
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
    gateway.catalog.get(name)
    topic = gateway.driver.engine.topic(name)
    start = values.get("from", "epoch")
    frames = topic.since(None if start == "epoch" else Bookmark.parse(start), limit)
    writer = EnvelopeWriter(name, topic.epoch, "publish")
    last = frames[-1].offset if frames else topic.head if start == "epoch" else None
    headers = {"Tidegate-Bookmark": start if last is None else str(topic.bookmark(last))}
    return StreamingResponse(_lines(writer, frames), media_type=NDJSON, headers=headers)


def _lines(writer: EnvelopeWriter, frames: list[Frame]) -> Iterator[bytes]:
    for start in range(0, len(frames), LINES_AT_ONCE):
        piece = frames[start : start + LINES_AT_ONCE]
        yield b"".join(writer.envelope(frame, timestamp=True) + b"\n" for frame in piece)


def _check_query(gateway: Gateway, scope: Scope) -> None:
    values: Mapping[str, str] = query_values(
        scope, {"ack": "options-invalid", "delta": "options-invalid"}
    )
    if values.get("delta", "false") != "false":
        raise Problem("options-invalid", "delta is not available yet.")
    ack = one_of(
        values.get("ack", "processed"), ("processed", "persisted"),
        code="options-invalid", what="ack",
    )  # fmt: skip
    if ack == "persisted" and not gateway.store.survives_process:
        raise Problem("options-invalid", "This gateway keeps nothing, so ack is processed.")


def _producer(scope: Scope) -> Producer | None:
    for later in _LATER_HEADERS:
        if header_value(scope, later, "message-invalid") is not None:
            raise Problem("message-invalid", f"The header {later} is not available yet.")
    name = header_value(scope, "tidegate-producer", "message-invalid", characters_max=255)
    number = header_value(scope, "tidegate-sequence", "message-invalid")
    if (name is None) != (number is None):
        raise Problem("message-invalid", "Tidegate-Producer and Tidegate-Sequence come together.")
    if name is None or number is None:
        return None
    if not name.strip():
        raise Problem("message-invalid", "Tidegate-Producer is a name.")
    sequence = integer(
        number, least=0, most=SEQUENCE_MAX, code="message-invalid", what="Tidegate-Sequence"
    )
    return Producer(name, sequence)
