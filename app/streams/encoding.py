"""Encodes the engine's outputs as server-sent events, each flush once. Pure."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from tidegate.app.streams.sse import END, FIELD, event
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.options.grant import granted, lane_text
from tidegate.conflation.outputs import (
    CloseReason,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    Rows,
    Subscribed,
    Unsubscribed,
)
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.conflation.subscription import Shown, Subscription
from tidegate.keys.text.bookmark import Bookmark

NOTHING = Shown()


class Op(StrEnum):
    """What a row does to a client's copy: `snapshot` and `publish` replace the record."""

    SNAPSHOT = "snapshot"
    PUBLISH = "publish"
    DELTA = "delta"
    OOF = "oof"


def op_of(frame: Frame, op: Op) -> Op:
    """Return a row's op; `op` is that of whole values in its batch."""
    if type(frame) is Frame:  # as most are
        return op
    if frame.removed:
        return Op.OOF
    return Op.DELTA if isinstance(frame, Row) and frame.patch is not None else op


def json_value(frame: Frame, kind: Kind) -> bytes:
    """Return a row's value as JSON: text as a string, binary as base64, a delta as its patch.

    The removal of a record that never existed has no value: null.
    """
    if isinstance(frame, Row) and frame.patch is not None:
        return frame.patch
    if kind is Kind.TEXT:
        return msgspec.json.encode(frame.payload.decode())
    if kind is Kind.BINARY:
        return b'"' + base64.b64encode(frame.payload) + b'"'
    return frame.payload or b"null"


class EnvelopeWriter:
    """Writes the envelopes of one topic; what they share is encoded once.

    A JSON payload is copied as published, never decoded. `bookmark` and `timestamp` (ms of the
    epoch) are those of the first message that a row conflates. `receipt` adds `conflated`, `first`
    and `last`; `no_sowkey` omits the key.
    """

    def __init__(
        self, topic: str, epoch: str, op: str, *, kind: Kind = Kind.JSON, shown: Shown = NOTHING
    ) -> None:
        self._topic = msgspec.json.encode(topic)
        self._op = Op(op)
        self._kind = kind
        self._has_json = kind in (Kind.JSON, Kind.SERIES)
        self._shown = shown
        self._shows_more = shown.timestamp or shown.receipt
        self._epoch = b'"' + epoch.encode() + b"-"
        self._head = self._head_of(self._op)

    def envelope(self, frame: Frame) -> bytes:
        """Encode one row."""
        op = op_of(frame, self._op)
        is_whole = op is self._op
        first = frame.offset if type(frame) is Frame else receipt_of(frame).first
        # No JSON encoder: this runs once for each row and format, and copies the payload.
        return b"".join(
            (
                self._head if is_whole else self._head_of(op),
                b"" if self._shown.no_sowkey else frame.key.encode() or b"null",
                b',"bookmark":',
                self._epoch,
                str(first).encode(),
                b'"',
                self._more(frame) if self._shows_more or not is_whole else b"",
                b',"value":',
                frame.payload if is_whole and self._has_json else json_value(frame, self._kind),
                b"}",
            )
        )

    def batch(self, frames: Iterable[Frame], *, has_more: bool = False) -> bytes:
        """Encode a flush, `{"topic", "rows": [envelopes]}`, or a part that another one follows."""
        rows = b",".join(map(self.envelope, frames))
        end = b'],"more":true}' if has_more else b"]}"
        return b'{"topic":' + self._topic + b',"rows":[' + rows + end

    def _head_of(self, op: Op) -> bytes:
        key_name = b"" if self._shown.no_sowkey else b',"key":'
        return b'{"topic":' + self._topic + b',"op":"' + op.encode() + b'"' + key_name

    def _more(self, frame: Frame) -> bytes:
        """Return the optional members."""
        count, members = receipt_of(frame), [b""]
        if self._shown.timestamp:
            members.append(b'"timestamp":%d' % count.first_ms)
        if self._shown.receipt:
            ends = (self._epoch, count.first, self._epoch, frame.offset)
            members.append(b'"conflated":%d' % count.messages)
            members.append(b'"first":%b%d","last":%b%d"' % ends)
        if isinstance(frame, Tombstone):
            members.append(b'"reason":"%b"' % frame.reason.encode())
        return b",".join(members)


class Format(StrEnum):
    """How rows are written: bare, each in an envelope, or a flush in one event."""

    VALUE = "value"
    ENVELOPE = "envelope"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Style:
    """How a subscription's rows from one topic are written.

    Rows after `cut` are live, earlier ones belong to the backfill. Without `ids` the session has
    several subscriptions and writes its own ids, in lines before the rows.
    """

    form: Format
    kind: Kind
    subscription: Subscription
    cut: Bookmark
    ids: bool = True
    variant: str = field(init=False)
    """Distinguishes the encodings of one batch."""
    is_plain: bool = field(init=False)
    """True without the options that depend on each write: `auto`, `max_age` and `progress`."""

    def __post_init__(self) -> None:
        shown = self.subscription.shown
        # Kept, because it is looked up for every batch and member.
        flags = (self.ids, shown.timestamp, shown.receipt, shown.no_sowkey)
        # Interned: every stream has a style, and there are few variants.
        object.__setattr__(self, "variant", sys.intern(f"{self.form} {flags}"))
        sees_writes = shown.auto is not None or shown.max_age_ns is not None or shown.progress
        object.__setattr__(self, "is_plain", not sees_writes)

    def entry(self, name: str) -> dict[str, object]:
        """Return the subscription as `hello` and `subscribed` show it.

        In a session of several subscriptions it has the bookmark after which rows begin; null where
        they begin with a snapshot or a replay.
        """
        subscription = self.subscription
        document: dict[str, object] = {
            "sub": name,
            "topic": subscription.topic,
            "options": granted(subscription),
            "lane": lane_text(subscription.lane_id),
        }
        if not self.ids:
            begin = self._begin()
            document["bookmark"] = None if begin is None else str(begin)
        return document

    def _begin(self) -> Bookmark | None:
        resume, cut = self.subscription.resume, self.cut
        if resume is not None:
            return resume if resume.epoch == cut.epoch else None
        begins = self.subscription.command.queries or self.subscription.replay is not None
        return None if begins else cut


Styles = Mapping[SubscriberId, Style]


@dataclass(frozen=True, slots=True)
class EventIds:
    """Makes the ids of a session of several subscriptions, and records what they stand for.

    Args:
        move: called when all rows of a subscriber up to a bookmark are written; "" means no id.
        end: called when the end of a subscriber is written.
    """

    move: Callable[[SubscriberId, Bookmark], str]
    end: Callable[[Unsubscribed], str]


def encode(
    outputs: Sequence[Output],
    styles: Styles,
    retry_ms: int,
    *,
    ids: EventIds | None = None,
    closed: str | None = None,
) -> bytes:
    """Encode outputs in sending order, as one piece for one write.

    `ids`: of a session of several subscriptions. `closed`: why its last reader was closed.
    """
    return b"".join(_encode(output, styles, retry_ms, ids, closed) for output in outputs)


def _encode(
    output: Output, styles: Styles, retry_ms: int, ids: EventIds | None, closed: str | None
) -> bytes:
    match output:
        case Rows():
            style = styles[output.name, output.topic]
            return rows_text(output, style) if ids is None else _headed(output, style, ids)
        case GroupBegin():
            return event("group_begin", _group(output))
        case GroupEnd():
            return event("group_end", _group(output), id_text=_id_text(output, ids))
        case Resumed():
            return event("resumed", _resumed(output, closed), id_text=_id_text(output, ids))
        case Subscribed():
            style = styles[output.name, output.topic]
            return event("subscribed", style.entry(output.name))
        case Unsubscribed():
            return unsubscribed(output, "" if ids is None else ids.end(output))
        case Goodbye():
            return goodbye(output.reason, retry_ms)


def goodbye(reason: CloseReason, retry_ms: int, id_text: str = "") -> bytes:
    """Encode the last event of a stream; the id is for readers that may come back with it."""
    document = {"reason": reason, "reconnect": reason.reconnect}
    return event("goodbye", document, id_text=id_text, retry_ms=retry_ms)


def unsubscribed(end: Unsubscribed, id_text: str = "") -> bytes:
    """Encode the end of a subscription in a topic, or in several with a comma between them.

    Only the last event has the id, so that a reader that missed any of them gets all again.
    """
    *earlier, last = (
        {"sub": end.name, "topic": topic, "reason": end.reason} for topic in end.topic.split(",")
    )
    events = [event("unsubscribed", document) for document in earlier]
    return b"".join([*events, event("unsubscribed", last, id_text=id_text)])


def _id_text(output: GroupEnd | Resumed, ids: EventIds | None) -> str:
    if ids is None or not output.bookmark:
        return output.bookmark
    return ids.move((output.name, output.topic), Bookmark.parse(output.bookmark))


def _group(output: GroupBegin | GroupEnd) -> dict[str, object]:
    return {"sub": output.name, "topic": output.topic, "rows": output.rows}


def _resumed(output: Resumed, closed: str | None) -> dict[str, object]:
    return {
        "sub": output.name,
        "topic": output.topic,
        "mode": output.mode,
        "gap_messages": output.gap_messages,
        "gap_ms": output.gap_ms,
        "not_found": output.not_found,
        "closed": closed,
    }


def rows_text(rows: Rows, style: Style) -> bytes:
    """Encode one batch, once for each variant; the batch caches the text.

    Only the last event has an id, and only if all rows up to it are sent then.
    """
    variant = rows.op + style.variant
    text = rows.batch.encoded.get(variant)
    if text is None:
        events = _ROWS[style.form](rows, style)
        text = rows.batch.encoded[variant] = END.join(_with_id(events, rows, style)) + END
    return text


def chunk(text: bytes) -> bytes:
    """Frame bytes for HTTP/1.1's chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(text), text)


def _headed(rows: Rows, style: Style, ids: EventIds) -> bytes:
    """Encode rows of a session of several subscriptions: its own lines and the shared text."""
    text = rows_text(rows, style)
    low_water = rows.batch.low_water
    id_text = ""
    if low_water is not None:
        id_text = ids.move((rows.name, rows.topic), Bookmark(rows.epoch, low_water))
    # The `data:` lines of an event are joined by a line break, which JSON allows inside an object.
    head = b"" if style.form is Format.VALUE else b'data: {"sub":"%b",\n' % rows.name.encode()
    last = b"id: %b\n%b" % (id_text.encode(), head) if id_text else head
    if style.form is Format.BATCH:
        return last + text
    # The shared text names no subscription and has no id, so each event gets its lines here.
    *events, end = text.removesuffix(END).split(END)
    return b"".join((*(head + each + END for each in events), last, end, END))


# Each of the three ends a line of an event stream: a bare CR in a text would end its field.
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")


def _values(rows: Rows, style: Style) -> list[bytes]:
    kind, whole = style.kind, Op.PUBLISH
    field_of = _FIELDS.get(kind, _json_field)
    return [
        field_of(frame.payload) if op_of(frame, whole) is whole else _named(frame, kind)
        for frame in rows.batch.frames
    ]


def _json_field(payload: bytes) -> bytes:
    return FIELD + payload


def _text_fields(payload: bytes) -> bytes:
    return b"\n".join(FIELD + line for line in _LINE_ENDS.split(payload))


def _binary_field(payload: bytes) -> bytes:
    return FIELD + base64.b64encode(payload)


_FIELDS = {Kind.TEXT: _text_fields, Kind.BINARY: _binary_field}


def _named(frame: Frame, kind: Kind) -> bytes:
    """Encode a delta or a removal, which are named events."""
    if not isinstance(frame, Tombstone):
        return b"event: delta\ndata: " + json_value(frame, kind)
    return b'event: oof\ndata: {"reason":"%b","key":%b,"value":%b}' % (
        frame.reason.encode(),
        frame.key.encode() or b"null",
        json_value(frame, kind),
    )


def _envelopes(rows: Rows, style: Style) -> list[bytes]:
    writer = _writer(rows, style)
    return [_object(writer.envelope(frame), style) for frame in rows.batch.frames]


def _batch(rows: Rows, style: Style) -> list[bytes]:
    batch = rows.batch
    return [_object(_writer(rows, style).batch(batch.frames, has_more=batch.has_more), style)]


def _object(text: bytes, style: Style) -> bytes:
    """Return a JSON object as a data line; without `ids`, its brace is in the session's line."""
    return FIELD + (text if style.ids else text[1:])


def _writer(rows: Rows, style: Style) -> EnvelopeWriter:
    shown = style.subscription.shown
    return EnvelopeWriter(rows.topic, rows.epoch, rows.op, kind=style.kind, shown=shown)


def _with_id(events: list[bytes], rows: Rows, style: Style) -> list[bytes]:
    if style.ids and rows.batch.low_water is not None:
        bookmark = Bookmark(rows.epoch, rows.batch.low_water)
        events[-1] = b"id: " + str(bookmark).encode() + b"\n" + events[-1]
    return events


_ROWS = {Format.VALUE: _values, Format.ENVELOPE: _envelopes, Format.BATCH: _batch}
