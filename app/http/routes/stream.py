"""`/v1/topics/{topic}/stream`: a topic read position by position, through any cache.

The requests are those of the Durable Streams protocol, the rows those of its State Protocol.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse
from starlette.types import Scope

from tidegate.app.access.grants import READ, Subject
from tidegate.app.gateway import Gateway
from tidegate.app.http.answers import PIECE_BYTES, body_pieces
from tidegate.app.http.entity_tags import names_entity_tag
from tidegate.app.http.exchange import WITHOUT_BODY
from tidegate.app.http.formats.choice import ARROW, CSV, chosen_format, encoder_for
from tidegate.app.http.formats.csv_text import CsvEncoder
from tidegate.app.http.formats.records import encoded
from tidegate.app.http.openapi import (
    SUBSCRIBE_CODES,
    answer,
    header,
    lines_of,
    name_of,
    problems,
)
from tidegate.app.http.parameters import Headers, described, query_of
from tidegate.app.http.problems import response_of, stopping
from tidegate.app.http.protocol import protocol_of
from tidegate.app.http.requests import (
    JSON,
    LONG_POLL,
    NDJSON,
    preferred,
    require_accept,
    topic_name,
)
from tidegate.app.http.scope import gateway_of, subject_in
from tidegate.app.http.wire import Fields
from tidegate.app.parameters import Parameters, line, text, word
from tidegate.app.refusals import Refused
from tidegate.app.streams.compression import Coding, encoder_of, negotiate
from tidegate.app.streams.poll_request import PollTexts
from tidegate.app.streams.polled import PolledStream
from tidegate.app.streams.polled_pages import Page, Position, RowForm
from tidegate.app.streams.sse import END, EVENT_STREAM, HEARTBEAT
from tidegate.conflation.frame import Frame
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import SECOND

BEGINNING: Final = "-1"
NOW: Final = "now"
SSE: Final = "sse"
WAIT_S: Final = 20.0
"""How long a request waits for rows."""
WAIT_OF_SUBJECT_S: Final = 4.0
"""The same with a token: a revocation takes effect within five seconds (rule access-9)."""
EVENTS_S: Final = 60.0
"""How long a stream of events lasts; then a cache can let other clients share the next one."""
CACHED_EMPTY_S: Final = 1
"""How long caches keep an empty answer: for requests with the same cursor that the cache has merged
into one. The next request has another cursor."""
CACHED_S_MAX: Final = 60
"""The longest time for which caches keep an answer."""
COMPRESSED_BYTES_MIN: Final = 512
CURSOR_EPOCH_MS: Final = 1_728_432_000_000
"""2024-10-09, from which the protocol counts cursors; here in milliseconds."""

_CURSOR = re.compile(r"[0-9]{1,18}", re.ASCII)
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")

CHANGES: Final = (JSON, NDJSON)
"""Media types of rows that are changes of keys."""
RECORDS: Final = (*CHANGES, CSV, ARROW)
"""Media types of values; the first one is for a client that accepts any."""
CONTENT_TYPES: Final = {
    JSON: JSON.encode(),
    NDJSON: NDJSON.encode(),
    CSV: CsvEncoder.content_type.encode(),
    ARROW: ARROW.encode(),
}
EVENTS_TYPE: Final = (b"content-type", EVENT_STREAM.encode())
UNBUFFERED: Final = (b"x-accel-buffering", b"no")  # or nginx would buffer events
NO_CACHE: Final = (b"cache-control", b"no-cache")  # in addition to no-store, as the protocol says
UP_TO_DATE: Final = (b"stream-up-to-date", b"true")
Answer = tuple[int, Fields, bytes]
"""Status, header fields and body."""
Respond = Callable[[int, Fields, bytes], None]

router = APIRouter(tags=["polling"], generate_unique_id_function=name_of)


class Polling(Parameters):
    """The query parameters: rows, format and position."""

    options: Annotated[
        str | None, text(), Field(description="conflation=1s,select=[-/,+/a],top_n=10")
    ] = None
    filter: Annotated[
        str | None, text("filter-invalid"), Field(description="Only records that match")
    ] = None
    order_by: Annotated[str | None, text(), Field(description="The order of top_n: /a DESC")] = None
    form: Annotated[
        str | None,
        word("format", tuple(RowForm)),
        Field(alias="format", description="state, but value on a topic without a key"),
    ] = None
    offset: Annotated[
        str | None,
        text("bookmark-invalid"),
        Field(description="-1 (the beginning), now, or the Stream-Next-Offset of an answer"),
    ] = None
    live: Annotated[
        str | None,
        word("live", (LONG_POLL, SSE)),
        Field(description="Wait for something new, or stream it for a minute"),
    ] = None
    cursor: Annotated[
        str | None, text(), Field(description="The Stream-Cursor of an answer, for caches")
    ] = None

    @classmethod
    def read(cls, scope: Scope) -> Polling:
        """Read the query of a request.

        Raises:
            Refused: an unknown, repeated or malformed parameter.
        """
        return query_of(cls, scope)

    @cached_property
    def position(self) -> Position | None:
        """The position of the request; None for the beginning or the end.

        Raises:
            Refused: bookmark-invalid.
        """
        if self.offset is None or self.offset in (BEGINNING, NOW):
            return None
        return Position.parse(self.offset)

    @cached_property
    def texts(self) -> PollTexts:
        """The parameters that select rows, not parsed yet."""
        return PollTexts(
            self.options or "", self.filter or "", self.order_by or "", self.form or ""
        )


class Validators(Headers):
    """The header fields that make a request conditional."""

    if_none_match: Annotated[
        str | None,
        line("options-invalid"),
        Field(alias="If-None-Match", description="304 where this is the answer's ETag, or `*`"),
    ] = None


_HEADERS = {
    "Stream-Next-Offset": header("Where the next request continues"),
    "Stream-Up-To-Date": {**header("true: there is no more yet"), "required": False},
    "Stream-Cursor": {**header("For the next request with live"), "required": False},
    "ETag": {**header("Tag of this answer, for If-None-Match"), "required": False},
}
_ROW = {
    "anyOf": [
        {
            "type": "object",
            "required": ["headers"],
            "properties": {
                "type": {"type": "string", "description": "The topic"},
                "key": {"type": "string", "description": "The record's key, a JSON array"},
                "value": {},
                "headers": {"type": "object"},
            },
        },
        {},
    ]
}
_ROWS = {
    JSON: {"schema": {"type": "array", "items": _ROW}},
    **lines_of(_ROW),
    CSV: {"schema": {"type": "string"}},
    ARROW: {"schema": {"type": "string", "format": "binary"}},
}
_ANSWERS = {
    200: answer("What has changed, as Accept asks", headers=_HEADERS, content=_ROWS),
    204: answer("Nothing new within the time of live=long-poll", headers=_HEADERS),
    304: answer("If-None-Match names this answer"),
    **problems(*SUBSCRIBE_CODES, "not-ready"),
}


@router.get(
    "/v1/topics/{topic}/stream",
    summary="Read a topic position by position",
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra={"parameters": described("The topic's name", Polling, Validators)},
)
async def read_stream(request: Request) -> Response:
    """Return what has changed since a position; each key once, with its newest value.

    As a JSON array, or as NDJSON where Accept asks for it; with `format=value` also as CSV or as an
    Arrow stream. With `live` the request waits for the next flush of the interval, as long-polling
    or as a stream of events.
    """
    read = await _reading(request)
    if read.live == SSE:
        events = StreamingResponse(read.events())
        events.raw_headers = [*read.cache_fields(0), NO_CACHE, EVENTS_TYPE, UNBUFFERED]
        return events
    if read.live == LONG_POLL and read.since is not None:
        protocol = protocol_of(request.scope)
        assert protocol is not None, "the gateway is served by its own protocol"
        page = await read.stream.next_page(read.since, read.wait_s, protocol.while_waiting)
    elif read.is_tail:
        await read.stream.built()
        page = read.end
    else:
        page = await read.stream.page(read.since)
    return _response(*read.answer(page, await _text_of(page, read.media_type)))


@router.head("/v1/topics/{topic}/stream", include_in_schema=False)
async def stream_head(request: Request) -> Response:
    """Return the position of the stream's end."""
    read = replace(await _reading(request), is_now=True, live=None)
    await read.stream.built()
    return _response(*read.answer(read.end, await _text_of(read.end, read.media_type)))


def answer_at_once(
    gateway: Gateway,
    scope: Scope,
    subject: Subject | None,
    respond: Respond,
    while_waiting: Callable[[Callable[[], None]], None],
) -> bool:
    """Answer a request without a task, now or at a flush; return False if the route has to.

    The route has to if something must be awaited: other gateways, a board, or encoding in steps.

    Args:
        gateway: the gateway.
        scope: of the request.
        subject: of the token; None on a gateway without authentication.
        respond: called with the answer.
        while_waiting: is given a function that ends the wait, for a client that leaves.

    Raises:
        Refusal: the route repeats it, and answers with it.
    """
    name = topic_name(scope)
    if subject is not None:
        subject.grants.require(READ, name)
    asked = _parse_query(scope["query_string"])
    if asked.live == SSE or gateway.stopping or gateway.catalog.served(name) is None:
        return False
    if asked.position is not None and not _needs_no_wait(gateway, name, asked.position):
        return False
    if preferred(scope, RECORDS) != JSON:  # others are encoded in steps
        return False
    read = _read(gateway, scope, name, asked, subject)
    stream = read.stream
    if not stream.is_built:
        return False
    page = read.end if read.is_tail else stream.page_now(read.since)
    stream.count_request()  # here: what was refused above is counted by the route
    if page.is_news or asked.live != LONG_POLL:
        respond(*read.answer(page, page.body))
        return True

    def answer(outcome: Page | Refused) -> None:
        if isinstance(outcome, Refused):
            problem = response_of(outcome)
            respond(problem.status_code, problem.raw_headers, bytes(problem.body))
        else:
            respond(*read.answer(outcome, outcome.body))

    while_waiting(partial(stream.expire, stream.wait(page.next, read.wait_s, answer)))
    return True


@dataclass(slots=True)
class Reading:
    """One request: its stream, its position, and how its answers are written.

    `is_now`: it begins at the present end, which differs from request to request.
    """

    gateway: Gateway
    stream: PolledStream
    since: Position | None
    interval_ns: int
    coding: Coding
    cursor: int | None
    if_none_match: str
    live: str | None
    media_type: str
    is_public: bool
    is_now: bool

    @property
    def is_tail(self) -> bool:
        """True if only the position of the stream's end is requested."""
        return self.is_now and self.live is None

    @property
    def wait_s(self) -> float:
        """How long the request may wait."""
        return WAIT_S if self.is_public else WAIT_OF_SUBJECT_S

    @property
    def end(self) -> Page:
        """A page without rows at the stream's end."""
        return Page(self.stream.tail, self.stream.tail)

    def answer(self, page: Page, text: bytes) -> Answer:
        """Return the answer with a page; `text` has its rows in the requested format.

        Equal requests of one flush share it: thousands may wait for the same page.
        """
        is_shared = text is page.body and not (self.if_none_match or self.is_now or self._is_ahead)
        variant = self.coding, self.live, self.is_public
        found: Answer | None = page.encoded.get(variant) if is_shared else None
        if found is None:
            found = self._build_answer(page, text)
            if is_shared:
                page.encoded[variant] = found
        status, _, body = found
        if page.rows and status == HTTPStatus.OK:
            self.stream.count_answer(len(body))
        return found

    def _build_answer(self, page: Page, text: bytes) -> Answer:
        places = self._position_fields(page.next, is_last=page.is_last)
        content_type = (b"content-type", CONTENT_TYPES[self.media_type])
        if self.is_tail:
            return _with_length(200, [*self.cache_fields(0), *places, content_type], text)
        if self.live == LONG_POLL and not page.is_news:
            cached_s = CACHED_EMPTY_S if self.is_public else 0
            return _with_length(204, [*self.cache_fields(cached_s), *places], b"")
        coding = self.coding if len(text) >= COMPRESSED_BYTES_MIN else Coding.IDENTITY
        tag = f"{page.next}:{page.digest}:{coding}"
        if self.media_type != JSON:
            tag = f"{tag}:{self.media_type}"
        tag = f'"{tag}"'
        fields = [*self.cache_fields(self.cached_s(page)), *places, (b"etag", tag.encode())]
        if self.if_none_match and names_entity_tag(self.if_none_match, tag):
            return _with_length(304, fields, b"")
        if coding is not Coding.IDENTITY:
            fields.append((b"content-encoding", coding.encode()))
            text = _compressed(page, text, coding)
        return _with_length(200, [*fields, content_type], text)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the changes of a minute as events of the protocol."""
        loop = asyncio.get_running_loop()
        # Shorter with a token, which is checked again when the client reconnects.
        end_s = loop.time() + (EVENTS_S if self.is_public else self.wait_s)
        since, is_first = self.since, True
        while (left_s := end_s - loop.time()) > 0 and not self.gateway.stopping:
            try:
                page = await self._next(since, 0 if is_first else min(left_s, self.wait_s))
            except Refused:
                return  # the next request is answered with it
            events = b""
            if page.rows:
                self.stream.count_answer(len(page.body))
                events = _event(b"data", page.body)
            if is_first or page.next != since:
                events += self._control(page)
            yield events or HEARTBEAT
            since, is_first = page.next, False

    def _control(self, page: Page) -> bytes:
        cursor = str(self._next_cursor())
        control: dict[str, str | bool] = {
            "streamNextOffset": str(page.next),
            "streamCursor": cursor,
        }
        if page.is_last:
            control["upToDate"] = True
        return _event(b"control", msgspec.json.encode(control))

    async def _next(self, since: Position | None, seconds: float) -> Page:
        if since is None:
            return await self.stream.page(None)
        return await self.stream.next_page(since, seconds)

    def cached_s(self, page: Page) -> int:
        """Return for how many seconds a cache may keep a page.

        A page with rows stays valid. An empty one would hide new rows, so it is kept for no longer
        than an interval.
        """
        if self.is_now:
            return 0
        whole_s = self.interval_ns // SECOND
        return min(CACHED_S_MAX, whole_s if page.rows == 0 else max(1, whole_s))

    def cache_fields(self, seconds: int) -> Fields:
        """Return the header fields that say which caches may keep an answer, and for how long."""
        return _cache_fields(seconds, is_public=self.is_public, is_live=self.live is not None)

    def _position_fields(self, position: Position, *, is_last: bool) -> Fields:
        fields = [(b"stream-next-offset", str(position).encode())]
        if is_last:
            fields.append(UP_TO_DATE)
        if self.live is not None:
            fields.append((b"stream-cursor", b"%d" % self._next_cursor()))
        return fields

    @property
    def _is_ahead(self) -> bool:
        """True if the client's cursor is later than the flush, so its next one is not shared."""
        return self.cursor is not None and self.cursor >= self._flush_cursor

    @property
    def _flush_cursor(self) -> int:
        return self.stream.flushed_ms - CURSOR_EPOCH_MS

    def _next_cursor(self) -> int:
        # The time of the flush in milliseconds, but later than the client's. The protocol suggests
        # a random part; without one, readers of the same flush get the same cursor, so that a cache
        # sees one request from then on.
        flushed = self._flush_cursor
        return flushed if self.cursor is None else max(flushed, self.cursor + 1)


@lru_cache(maxsize=256)
def _cache_fields(seconds: int, *, is_public: bool, is_live: bool) -> Fields:
    vary = b"Accept-Encoding" if is_live else b"Accept, Accept-Encoding"
    scope = b"public"
    if not is_public:
        scope, vary = b"private", vary + b", Authorization, Cookie"
    control = b"%b, max-age=%d" % (scope, seconds) if seconds else b"no-store"
    return [(b"cache-control", control), (b"vary", vary), (b"accept-ranges", b"none")]


@lru_cache(maxsize=256)
def _parse_query(query: bytes) -> Polling:
    """Parse a query; readers in step send equal ones.

    Raises:
        Refused: as `Polling.read`; it is not cached.
    """
    return Polling.read({"query_string": query})


async def _reading(request: Request) -> Reading:
    """Read a request, after waiting for the topic and the position.

    Raises:
        Refusal: as `_read`; not-ready.
    """
    gateway, subject, scope = gateway_of(request), subject_in(request.scope), request.scope
    name, asked = topic_name(scope), Polling.read(scope)
    since = asked.position
    await gateway.catalog.seek(name)
    gateway.catalog.get(name)
    if since is not None:
        await gateway.reach(name, Bookmark(since.epoch, since.offset), by=subject)
    if gateway.stopping:
        raise stopping()
    read = _read(gateway, scope, name, asked, subject)
    read.stream.count_request()
    return read


def _read(
    gateway: Gateway, scope: Scope, name: str, asked: Polling, subject: Subject | None
) -> Reading:
    """Read a request: its stream, its position and its format.

    Raises:
        Refusal: topic-unknown, options-invalid, filter-invalid, bookmark-invalid, limit-reached,
            not-acceptable.
    """
    if asked.live is not None and asked.offset is None:
        raise Refused("options-invalid", "live needs an offset: -1, now, or a Stream-Next-Offset.")
    cursor, since = _cursor(asked.cursor), asked.position
    grants = None if subject is None else subject.grants
    poll = gateway.polled.granted(name, asked.texts, grants)
    media_type = _media_type(scope, asked.live, poll.form)
    stream = gateway.polled.stream(poll, subject)  # last: a refused request opens none
    is_now = asked.offset == NOW
    if is_now and asked.live is not None:
        since = stream.tail
    return Reading(
        gateway,
        stream,
        since,
        poll.subscription.lane_id.interval_ns,
        _negotiated(scope),
        cursor,
        _value(scope, b"if-none-match"),
        asked.live,
        media_type,
        is_public=subject is None,
        is_now=is_now,
    )


def _needs_no_wait(gateway: Gateway, name: str, place: Position) -> bool:
    """Return True if this gateway has the position's epoch and offset already."""
    topic = gateway.driver.engine.topic(name)
    return place.epoch == topic.epoch and place.offset <= topic.head


def _with_length(status: int, fields: list[tuple[bytes, bytes]], body: bytes) -> Answer:
    """Return an answer with the field Content-Length."""
    if status not in WITHOUT_BODY:
        fields.append((b"content-length", b"%d" % len(body)))
    return status, tuple(fields), body


def _response(status: int, fields: Fields, body: bytes) -> Response:
    """Return an answer as the framework's response."""
    if len(body) <= PIECE_BYTES:
        response = Response(body, status)
    else:
        response = StreamingResponse(_pieces(body), status)
    response.raw_headers = list(fields)
    return response


def _media_type(scope: Scope, live: str | None, form: RowForm) -> str:
    """Return the media type of rows that Accept prefers.

    Raises:
        Refused: not-acceptable.
    """
    if live is not None:
        require_accept(scope, EVENT_STREAM if live == SSE else JSON)
        return JSON
    if form is RowForm.VALUE:
        return chosen_format(scope, RECORDS)
    if preferred(scope, CHANGES) is None and preferred(scope, RECORDS) is not None:
        detail = "A removal is no row of CSV or Arrow; format=value has no removals."
        raise Refused("not-acceptable", detail)
    return chosen_format(scope, CHANGES)


async def _text_of(page: Page, media_type: str) -> bytes:
    """Return the rows of a page in a format.

    Raises:
        HttpRefused: not-acceptable, if the rows have too many different fields.
    """
    if media_type == JSON:
        return page.body
    texts = msgspec.json.decode(page.body, type=list[msgspec.Raw])
    rows = [Frame(0, bytes(text), "", 0) for text in texts]
    encoder = await encoder_for(media_type, rows, _payload, {})
    return b"".join([part async for part in encoded(encoder, rows, _payload)])


def _payload(frame: Frame) -> bytes:
    return frame.payload


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for piece in body_pieces(body):
        yield piece


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    if not _CURSOR.fullmatch(text):
        raise Refused("options-invalid", "cursor is the Stream-Cursor of an answer, unchanged.")
    return int(text)


def _negotiated(scope: Scope) -> Coding:
    wanted = _value(scope, b"accept-encoding")
    return negotiate(wanted) if wanted else Coding.IDENTITY


def _value(scope: Scope, name: bytes) -> str:
    """Return a header's value, empty without one."""
    values = [value for each, value in scope["headers"] if each == name]
    return b",".join(values).decode("latin-1")


def _compressed(page: Page, text: bytes, coding: Coding) -> bytes:
    """Return compressed rows of a page; JSON is compressed once for all requests."""
    encoder = encoder_of(coding)
    if encoder is None:
        return text
    found: bytes | None = page.encoded.get(coding) if text is page.body else None
    if found is None:
        block = encoder.block(text)  # before `end`, which has its checksum
        found = encoder.header + block + encoder.end()
        if text is page.body:
            page.encoded[coding] = found
    return found


def _event(name: bytes, body: bytes) -> bytes:
    """Return an event of the protocol; a payload may have line breaks."""
    fields = b"\n".join(b"data:" + line for line in _LINE_ENDS.split(body))
    return b"event: %b\n%b" % (name, fields) + END
