"""`/v1/topics/{topic}/messages`: publishing, and reading the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Scope

from app.entry import Entry
from app.envelope import EnvelopeWriter
from app.gateway import Gateway, gateway_of
from app.ingest import Form, check_filler
from app.openapi import described
from app.problems import Problem
from app.query import (
    boolean,
    content_type,
    header_value,
    integer,
    one_of,
    query_values,
    read_body,
    topic_name,
    writable_topic_name,
)
from app.stores.store import Producer
from conflation.bookmark import Bookmark
from conflation.definition import Kind
from conflation.frame import Frame
from conflation.subscription import Shown

NDJSON = "application/x-ndjson"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
TEXT = "text/plain"
BYTES = "application/octet-stream"
SEQUENCE_MAX = 2**63 - 1
JOURNAL_LIMIT = 1_000
JOURNAL_LIMIT_MAX = 100_000
LINES_AT_ONCE = 500

_OF_JSON = (JSON, NDJSON, MERGE_PATCH)
_TAKEN = {Kind.JSON: _OF_JSON, Kind.SERIES: _OF_JSON, Kind.TEXT: (TEXT,), Kind.BINARY: (BYTES,)}
_LATER_HEADERS = ("tidegate-stage", "idempotency-key")

router = APIRouter(tags=["messages"])


@router.post(
    "/v1/topics/{topic}/messages",
    summary="Publish messages, all or none",
    openapi_extra=described(
        query={
            "ack": "processed: it has its position and the state of the world shows it",
            "delta": "true: each is merged into the record that its key fields name",
        },
        header={
            "Tidegate-Producer": "Name of a numbered producer",
            "Tidegate-Sequence": "Its number; one not above its highest publishes nothing",
            "Tidegate-Conflate": "never: these messages are not to be conflated",
        },
        body=[*_OF_JSON, TEXT, BYTES],
    ),
)
async def publish(request: Request) -> Response:
    """One message, or NDJSON. Answers with the bookmarks of the first and the last."""
    gateway, name = gateway_of(request), writable_topic_name(request.scope)
    media_type = content_type(request.scope, (*_OF_JSON, TEXT, BYTES))
    form = _form(gateway, request.scope, media_type)
    producer = _producer(request.scope)
    body = await read_body(request, gateway.settings.request_bytes_max)
    entry = gateway.catalog.find(name)
    if entry is None and not gateway.settings.auto_create_topics:
        raise Problem("topic-unknown", "There is no topic of this name.")
    if entry is not None:
        check_filler(entry, producer)
    _check_taken(entry, media_type)
    if entry is None:  # nothing is made for a request that is refused
        await gateway.ingest.check_plain(body, form)
        entry = await gateway.catalog.get_or_create(name)
        _check_taken(entry, media_type)
    messages = await gateway.ingest.check(entry, body, form)
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
    kind = gateway.catalog.get(name).document.kind
    topic = gateway.driver.engine.topic(name)
    start = values.get("from", "epoch")
    frames = topic.since(None if start == "epoch" else Bookmark.parse(start), limit)
    writer = EnvelopeWriter(name, topic.epoch, "publish", kind=kind, shown=Shown(timestamp=True))
    last = frames[-1].offset if frames else topic.head if start == "epoch" else None
    headers = {"Tidegate-Bookmark": start if last is None else str(topic.bookmark(last))}
    return StreamingResponse(_lines(writer, frames), media_type=NDJSON, headers=headers)


def _lines(writer: EnvelopeWriter, frames: list[Frame]) -> Iterator[bytes]:
    for start in range(0, len(frames), LINES_AT_ONCE):
        piece = frames[start : start + LINES_AT_ONCE]
        yield b"".join(writer.envelope(frame) + b"\n" for frame in piece)


def _check_taken(entry: Entry | None, media_type: str) -> None:
    """Whether the topic's type takes this media type; a topic that is still to be made is JSON."""
    kind = Kind.JSON if entry is None else entry.document.kind
    if media_type not in _TAKEN[kind]:
        taken = ", ".join(_TAKEN[kind])
        raise Problem("unsupported-media-type", f"A topic of type {kind} takes {taken}.")


def _form(gateway: Gateway, scope: Scope, media_type: str) -> Form:
    code = "options-invalid"
    values: Mapping[str, str] = query_values(scope, {"ack": code, "delta": code})
    is_patch = media_type == MERGE_PATCH
    delta = boolean(values.get("delta", str(is_patch).lower()), code=code, what="delta")
    if is_patch and not delta:
        raise Problem(code, "A merge patch is a delta.")
    if delta and media_type in (TEXT, BYTES):
        raise Problem(code, "Text and bytes have no deltas.")
    ack = one_of(values.get("ack", "processed"), ("processed", "persisted"), code=code, what="ack")
    if ack == "persisted" and not gateway.store.survives_process:
        raise Problem(code, "This gateway keeps nothing, so ack is processed.")
    never = header_value(scope, "tidegate-conflate", "message-invalid")
    if never not in (None, "never"):
        raise Problem("message-invalid", "Tidegate-Conflate is never.")
    return Form(lined=media_type == NDJSON, delta=delta, exempt=never is not None)


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
