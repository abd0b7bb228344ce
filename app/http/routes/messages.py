"""`/v1/topics/{topic}/messages`: publishing, and reading the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Annotated, NamedTuple

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tidegate.app.access.grants import Subject
from tidegate.app.archive.archive import begun
from tidegate.app.gateway import Gateway
from tidegate.app.http.formats.records import NdjsonEncoder, encoded
from tidegate.app.http.openapi import (
    BOOKMARK,
    answer,
    body,
    json_body,
    lines_of,
    name_of,
    problems,
    ref,
)
from tidegate.app.http.parameters import STRICT, TopicPath, WritableTopicPath, described
from tidegate.app.http.publish_request import (
    DOCUMENT_BYTES_MAX,
    Ack,
    CommitDocument,
    PublishHeaders,
    PublishQuery,
    PublishRequest,
    commit_of,
    own_name,
    publishable_topic_name,
    refuse_retry_key,
)
from tidegate.app.http.requests import (
    BYTES,
    JSON,
    MERGE_PATCH,
    NDJSON,
    TEXT,
    content_type,
    read_body,
)
from tidegate.app.http.routes.models.messages import (
    Envelope,
    Message,
    MessagePatch,
    Published,
    SentEnvelope,
    Staged,
)
from tidegate.app.http.scope import gateway_of, grants_in, subject_in
from tidegate.app.parameters import Parameters, text, whole
from tidegate.app.refusals import Refused, topic_unknown
from tidegate.app.stores.store import Appended
from tidegate.app.streams.encoding import EnvelopeWriter
from tidegate.app.topics.ingest import BodyForm
from tidegate.app.topics.registry import CatalogTopic, check_filler, makes_topics
from tidegate.conflation.definition import Kind
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import Frame
from tidegate.conflation.subscription import Shown
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.errors import BookmarkInvalid, Refusal, TextInvalid
from tidegate.keys.text.bookmark import START, Bookmark
from tidegate.keys.text.time import parse_time

JOURNAL_LIMIT = 1_000
JOURNAL_LIMIT_MAX = 100_000

_OF_JSON = (JSON, NDJSON, MERGE_PATCH)
_TAKEN = {Kind.JSON: _OF_JSON, Kind.SERIES: _OF_JSON, Kind.TEXT: (TEXT,), Kind.BINARY: (BYTES,)}
CREATED = 201

router = APIRouter(tags=["messages"], generate_unique_id_function=name_of)


_MESSAGE = {"anyOf": [ref(Message), ref(SentEnvelope)]}
_BODY = {
    JSON: {"schema": _MESSAGE},
    NDJSON: {"schema": {"type": "string"}, "itemSchema": _MESSAGE},
    MERGE_PATCH: {"schema": ref(MessagePatch)},
    TEXT: {"schema": {"type": "string"}},
    BYTES: {"schema": {"type": "string", "format": "binary"}},
}
_PUBLISHING = (
    "topic-unknown", "topic-invalid", "topic-read-only", "topic-conflict", "options-invalid",
    "message-invalid", "message-too-large", "key-invalid", "key-missing", "schema-violation",
    "idempotency-conflict", "producer-fenced", "precondition-failed", "unsupported-media-type",
    "unsupported-encoding",
)  # fmt: skip


@router.post(
    "/v1/topics/{topic}/messages",
    summary="Publish messages, all or none",
    responses={
        200: answer("The bookmarks of the first and the last", ref(Published)),
        201: answer("Kept aside, with Tidegate-Stage", ref(Staged)),
        **problems(*_PUBLISHING),
    },
    openapi_extra={
        "parameters": described("Name of the topic", PublishQuery, PublishHeaders),
        **body(_BODY),
    },
)
async def publish(request: Request) -> Response:
    """Publish one message, or NDJSON; answer with the bookmarks of the first and the last."""
    gateway, name = gateway_of(request), publishable_topic_name(request.scope)
    subject = subject_in(request.scope)
    gateway.quotas.check_publish(subject)
    # Before the body: a request that its headers refuse saves up to 64 MiB of reading.
    asked = PublishRequest.read(request.scope, gateway.store)
    form = _granted_form(asked.form, request.scope, name)
    # Bodies under way are memory, too: many at once could pass the bound that each has found free.
    bytes_max, check = gateway.settings.request_bytes_max, gateway.quotas.memory.check
    payload = await read_body(request, bytes_max, check)
    # Again: requests that were read side by side have not known of one another.
    gateway.quotas.check_publish(subject)
    # Counted also if it is refused below: reading and checking it is what it costs.
    gateway.quotas.note_publish(subject, _counted(payload, form), len(payload))
    # A topic that a pipeline fills was declared, or made by it: if it is gone, it stays so.
    may_make = gateway.settings.auto_create_topics and not makes_topics(asked.producer)

    async def found() -> CatalogTopic:
        entry = await gateway.catalog.seek(name)
        if entry is not None:
            return entry
        if not may_make:
            raise topic_unknown(name)
        # Nothing is made for a request that is refused.
        _check_taken(Kind.JSON, asked.media_type)
        await gateway.ingest.check_plain(payload, form)
        with gateway.quotas.creating_topic(subject, gateway.catalog.exists):
            entry = await gateway.catalog.get_or_create(name)
            gateway.quotas.note_topic(subject, name)
        return entry

    entry = await found()
    # The digest of a large body is the most expensive check, so it is the last one.
    sub = None if subject is None else subject.sub
    retry = await asked.retry(payload, sub)

    async def taken(entry: CatalogTopic) -> Response:
        check_filler(entry, asked.producer)
        _check_taken(entry.document.kind, asked.media_type)
        if asked.stage is not None:
            return await _staged(gateway, entry, payload, form, asked, own_name(sub, asked.stage))
        appended = await gateway.ingest.take(entry, payload, form, asked.numbered(sub), retry)
        return published(entry, appended)

    while True:
        try:
            return await gateway.catalog.with_newest_definition(entry, taken)
        except Refusal as refusal:
            # Deleted before anything was stored: as if the topic had not been there yet.
            if refusal.code != "topic-unknown" or not may_make:
                raise
            entry = await found()


def publish_at_once(
    gateway: Gateway, name: str, form: BodyForm, subject: Subject | None, payload: bytes
) -> bytes | None:
    """Publish the body of a plain request in this iteration, and return the answer's.

    Return None, with nothing published, where that has to wait. The store is an immediate one.

    Raises:
        Refusal: nothing was published.
    """
    entry, messages = gateway.catalog.served(name), _counted(payload, form)
    if entry is None or entry.writing.locked():
        return None
    # Before they are checked: where they are too many, the route checks them in steps.
    is_small = len(payload) <= gateway.settings.request_bytes_max
    if not (is_small and gateway.driver.publishes_at_once(name, messages, len(payload))):
        return None
    gateway.quotas.check_publish(subject)
    items = gateway.ingest.check_at_once(entry, payload, form)
    if items is None:
        return None
    appended = gateway.writer.write_at_once(entry, items)
    gateway.quotas.note_publish(subject, messages, len(payload))
    return _answer_of(entry, appended)


def _counted(payload: bytes, form: BodyForm) -> int:
    return payload.count(b"\n") + 1 if form.lined else 1


def _granted_form(form: BodyForm, scope: Scope, topic: str) -> BodyForm:
    """Return the form without removals if the subject may not remove records of the topic.

    Raises:
        Refused: forbidden, for deltas of a subject that may not read all of the topic.
    """
    grants = grants_in(scope)
    if grants is None:
        return form
    if form.delta:
        # Whether the merged record fits a schema or a size tells of what it was merged into.
        grants.require_whole(topic)
    if not form.enveloped:
        return form
    # As `DELETE` of records: it tells which keys there are.
    entitlement = grants.reading(topic)
    return replace(form, may_remove=entitlement is not None and entitlement.is_whole)


async def _staged(
    gateway: Gateway,
    entry: CatalogTopic,
    payload: bytes,
    form: BodyForm,
    asked: PublishRequest,
    own_stage: str,
) -> Response:
    # Checked here, so that a commit of many stages cannot fail on a line sent an hour ago.
    messages = await gateway.ingest.check(entry, payload, form)
    await gateway.ingest.stage(entry, messages, own_stage, asked.producer)
    # No bookmarks: a stage has no offsets before its commit.
    kept = {"topic": entry.record.name, "stage": asked.stage, "messages": len(messages)}
    return Response(msgspec.json.encode(kept), CREATED, media_type=JSON)


def published(entry: CatalogTopic, appended: Appended) -> Response:
    """Answer a publish; a retry gets the bookmarks of the first attempt, if they are known."""
    return Response(_answer_of(entry, appended), media_type=JSON)


def _answer_of(entry: CatalogTopic, appended: Appended) -> bytes:
    # The store keeps the places of an idempotency key, and none of a producer's duplicate.
    epoch, is_known = entry.record.epoch, 0 < appended.first <= appended.last
    answer: dict[str, object] = {
        "topic": entry.record.name,
        "messages": appended.last - appended.first + 1 if is_known else 0,
        "first": str(Bookmark(epoch, appended.first)) if is_known else None,
        "last": str(Bookmark(epoch, appended.last)) if is_known else None,
        "duplicate": appended.duplicate,
    }
    if appended.highest is not None:
        answer["sequence"] = appended.highest
    if appended.unmatched:
        answer["unmatched_removals"] = appended.unmatched
    return msgspec.json.encode(answer)


class JournalRange(Parameters):
    """A range of the journal."""

    start: Annotated[
        str,
        text("bookmark-invalid"),
        Field(
            alias="from",
            description="`epoch`, a bookmark (messages after it), or a time (messages since then)",
        ),
    ] = START
    limit: Annotated[
        int, whole("limit", 1, JOURNAL_LIMIT_MAX), Field(description="1,000 if absent")
    ] = JOURNAL_LIMIT
    last: Annotated[
        int | None,
        whole("last", 1, JOURNAL_LIMIT_MAX),
        Field(description="The newest messages, so many, in place of `from` and `limit`"),
    ] = None


@router.get(
    "/v1/topics/{topic}/messages",
    summary="The journal as NDJSON envelopes",
    dependencies=STRICT,
    response_class=Response,
    responses={
        200: answer("Oldest first", headers=BOOKMARK, content=lines_of(ref(Envelope))),
        **problems("topic-unknown", "options-invalid", "bookmark-invalid", "bookmark-expired"),
    },
)
async def read_journal(
    request: Request, topic: TopicPath, asked: Annotated[JournalRange, Query()]
) -> Response:
    """Return the messages after `from`; `Tidegate-Bookmark` is the `from` of the next page."""
    if asked.last is not None and len(asked.given()) > 1:
        raise Refused("options-invalid", "Give last, or from and limit, not both.")
    quotas = gateway_of(request).quotas
    with ExitStack() as held:
        held.enter_context(quotas.reading(subject_in(request.scope)))
        answer = await _journal(gateway_of(request), subject_in(request.scope), topic, asked)
        return HeldAnswer(answer, held.pop_all())


class HeldAnswer(Response):
    """Sends another answer, and lets go of what it holds once that is sent or given up."""

    def __init__(self, answer: Response, held: ExitStack) -> None:
        # Not the base's own: this one has no body, and the framework asks for these two.
        self.raw_headers, self.background = answer.raw_headers, None
        self._answer, self._held = answer, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        with self._held:
            await self._answer(scope, receive, send)


async def _journal(
    gateway: Gateway, subject: Subject | None, name: str, asked: JournalRange
) -> StreamingResponse:
    limit, start = asked.last or asked.limit, _start_of(asked)
    # Another gateway may have created it a moment ago, and this one does not know it yet.
    await gateway.catalog.seek(name)
    kind = gateway.catalog.get(name).document.kind
    if isinstance(start, Bookmark):
        await gateway.catch_up(name, start, by=subject)
    held = await _looked_back(gateway, name, start)
    writer = EnvelopeWriter(name, held.epoch, "publish", kind=kind, shown=Shown(timestamp=True))
    seen = _place_of(start, held)
    since_ms = start.ms if isinstance(start, Since) else None
    # Only beyond the journal: that is in memory, and the archive is files.
    if gateway.archive and held.reaches(seen) and not held.journal_reaches(seen):
        # The header goes out before the rows are read, so the end of the page is settled first.
        through = min(seen.offset + limit, held.head)
        # Begun before the header is sent, so that a missing file is still a problem.
        pieces = await begun(gateway.archive.messages(held, kind, seen.offset, through))
        headers = {"Tidegate-Bookmark": str(held.bookmark(through))}
        lines = _all_lines(writer, pieces, since_ms)
        return StreamingResponse(lines, media_type=NDJSON, headers=headers)
    frames = held.since(seen, limit)
    # If there are no more messages, the reader continues from the same position.
    end = held.bookmark(frames[-1].offset) if frames else seen
    headers = {"Tidegate-Bookmark": str(end)}
    return StreamingResponse(_lines(writer, frames), media_type=NDJSON, headers=headers)


class Since(NamedTuple):
    """A start of the journal: messages that are not older than a time, milliseconds since 1970."""

    ms: int


class Newest(NamedTuple):
    """A start of the journal: before the newest messages, so many."""

    messages: int


JournalStart = Bookmark | Since | Newest | None


def _start_of(asked: JournalRange) -> JournalStart:
    """Return where to begin; None for the beginning.

    Raises:
        Refused: bookmark-invalid.
    """
    if asked.last is not None:
        return Newest(asked.last)
    if asked.start == START:
        return None
    with suppress(BookmarkInvalid):
        return Bookmark.parse(asked.start)
    try:
        return Since(parse_time(asked.start))
    except TextInvalid as error:
        known = "expected epoch, a bookmark (the id of an event, unchanged) or "
        detail = str(error).replace("expected ", known, 1)
        raise Refused("bookmark-invalid", f"from: {detail}.") from None


def _place_of(start: JournalStart, held: Topic) -> Bookmark:
    """Return the place after which to begin.

    Raises:
        BookmarkExpired: what was published since a time may be gone.
    """
    match start:
        case None:
            return held.bookmark(held.beginning)
        case Newest(messages):
            return held.bookmark(max(held.beginning, held.head - messages))
        case Since(time_ms):
            if not held.reaches_time(time_ms):
                raise BookmarkExpired("the journal does not reach back to this time")
            return held.bookmark(held.start_at(time_ms))
    return start


async def _looked_back(gateway: Gateway, name: str, start: JournalStart) -> Topic:
    """Return the topic, with what an archive has of it where its journal is not enough."""
    topic = gateway.driver.engine.topic(name)
    # Asking the archive lists a folder; a reader that follows the journal never causes it.
    if not isinstance(start, Bookmark) or not topic.journal_reaches(start):
        await gateway.look_back(name)
    return gateway.driver.engine.topic(name)


async def _all_lines(
    writer: EnvelopeWriter, pieces: AsyncIterator[Sequence[Frame]], since_ms: int | None
) -> AsyncIterator[bytes]:
    async for frames in pieces:
        # An archive is looked up by piece, so its first one may begin before the time.
        wanted = frames
        if since_ms is not None and frames[0].timestamp_ms < since_ms:
            wanted = [frame for frame in frames if frame.timestamp_ms >= since_ms]
        async for lines in _lines(writer, wanted):
            yield lines


def _lines(writer: EnvelopeWriter, frames: Sequence[Frame]) -> AsyncIterator[bytes]:
    return encoded(NdjsonEncoder(), frames, writer.envelope)


def _check_taken(kind: Kind, media_type: str) -> None:
    """Refuse a media type that topics of this type do not take.

    Raises:
        Refused: unsupported-media-type.
    """
    if media_type not in _TAKEN[kind]:
        taken = ", ".join(_TAKEN[kind])
        raise Refused("unsupported-media-type", f"A topic of type {kind} takes {taken}.")


@router.post(
    "/v1/topics/{topic}/commits",
    summary="Publish stages in one step, in the order of their list",
    dependencies=STRICT,
    responses={200: answer("As publishing", ref(Published)), **problems(*_PUBLISHING)},
    openapi_extra=json_body(CommitDocument),
)
async def commit(
    request: Request, topic: WritableTopicPath, query: Annotated[Ack, Query()]
) -> Response:
    """Publish the stages of a producer's run in one step; answer as publishing does.

    A sequence not above the producer's highest publishes nothing and leaves the stages. The commit
    of an older run is refused.
    """
    gateway = gateway_of(request)
    content_type(request.scope, (JSON,))
    # The sequence makes a commit safe to repeat; an idempotency key could contradict it.
    query.check(gateway.store)
    refuse_retry_key(request.scope, "a commit has its sequence")
    subject = subject_in(request.scope)
    sub = None if subject is None else subject.sub
    asked = commit_of(await read_body(request, DOCUMENT_BYTES_MAX), sub)
    await gateway.catalog.seek(topic)

    async def committed(entry: CatalogTopic) -> Response:
        return published(entry, await gateway.ingest.commit(entry, *asked))

    return await gateway.catalog.with_newest_definition(gateway.catalog.get(topic), committed)
