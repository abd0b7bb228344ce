"""Outputs of the engine as the bytes of server-sent events. Pure; a flush is encoded once."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import msgspec

from app.envelope import EnvelopeWriter, Op, json_value, op_of
from conflation.bookmark import Bookmark
from conflation.definition import Kind
from conflation.frame import Frame, Tombstone
from conflation.language.normal import granted, lane_text
from conflation.outputs import (
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
from conflation.sessions.session import SeatId
from conflation.subscription import Subscription

HEARTBEAT = b": heartbeat\n\n"


class Format(StrEnum):
    """How rows are written: the message itself, each in an envelope, or a flush in one event."""

    VALUE = "value"
    ENVELOPE = "envelope"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Style:
    """How a subscription's rows from one topic are written.

    Rows behind `cut` are live, those up to it its opening's. Without `ids` it is one of several:
    a place in its topic is none in the session, which puts lines of its own before the rows.
    """

    form: Format
    kind: Kind
    subscription: Subscription
    cut: Bookmark
    ids: bool = True
    variant: str = field(init=False)
    """What tells encodings of a lane's batch apart."""

    def __post_init__(self) -> None:
        shown = self.subscription.shown
        flags = (self.ids, shown.timestamp, shown.receipt, shown.no_sowkey)
        object.__setattr__(self, "variant", f"{self.form} {flags}")

    def entry(self, name: str) -> dict[str, object]:
        """The subscription as `hello` and `subscribed` tell it.

        In a session of several with the place behind which its rows begin; null where it begins
        with a snapshot or a replay.
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


Styles = Mapping[SeatId, Style]


class Marks(Protocol):
    """Where a session of several subscriptions notes what its events say; it makes their ids."""

    def moved(self, seat: SeatId, bookmark: Bookmark) -> str:
        """Nothing of the seat up to here is still to come; the event's id, or "" for none."""

    def ended(self, seat: SeatId, told: Unsubscribed) -> str:
        """The seat's end is told; the event's id."""


def event(name: str, document: object, *, id_text: str = "", retry_ms: int | None = None) -> bytes:
    """A named event; the document is JSON on one line."""
    lines = [b"event: " + name.encode()]
    if id_text:
        lines.append(b"id: " + id_text.encode())
    if retry_ms is not None:
        lines.append(b"retry: %d" % retry_ms)
    lines.append(_FIELD + msgspec.json.encode(document))
    return b"\n".join(lines) + _END


def encode(
    outputs: Sequence[Output],
    styles: Styles,
    retry_ms: int,
    *,
    marks: Marks | None = None,
    closed: str | None = None,
) -> bytes:
    """Outputs in the order of sending, as one piece for one write.

    `marks`: they are a session's of several subscriptions. `closed`: why it was away.
    """
    return b"".join(_encode(output, styles, retry_ms, marks, closed) for output in outputs)


def _encode(
    output: Output, styles: Styles, retry_ms: int, marks: Marks | None, closed: str | None
) -> bytes:
    match output:
        case Rows():
            style = styles[output.name, output.topic]
            return rows_text(output, style) if marks is None else _headed(output, style, marks)
        case GroupBegin():
            return event("group_begin", _group(output))
        case GroupEnd():
            return event("group_end", _group(output), id_text=_id_text(output, marks))
        case Resumed():
            return event("resumed", _resumed(output, closed), id_text=_id_text(output, marks))
        case Subscribed():
            style = styles[output.name, output.topic]
            return event("subscribed", style.entry(output.name))
        case Unsubscribed():
            seat = output.name, output.topic
            return unsubscribed(output, "" if marks is None else marks.ended(seat, output))
        case Goodbye():
            return goodbye(output.reason, retry_ms)


def goodbye(reason: CloseReason, retry_ms: int, id_text: str = "") -> bytes:
    """The event of a stream's end; with an id where a return with that is to be told so."""
    document = {"reason": reason, "reconnect": reason.reconnect}
    return event("goodbye", document, id_text=id_text, retry_ms=retry_ms)


def unsubscribed(told: Unsubscribed, id_text: str = "") -> bytes:
    """The event of a subscription's end in a topic."""
    document = {"sub": told.name, "topic": told.topic, "reason": told.reason}
    return event("unsubscribed", document, id_text=id_text)


def _id_text(output: GroupEnd | Resumed, marks: Marks | None) -> str:
    if marks is None or not output.bookmark:
        return output.bookmark
    return marks.moved((output.name, output.topic), Bookmark.parse(output.bookmark))


def _group(output: GroupBegin | GroupEnd) -> dict[str, object]:
    return {"sub": output.name, "topic": output.topic, "rows": output.rows}


def _resumed(output: Resumed, closed: str | None) -> dict[str, object]:
    return {
        "sub": output.name,
        "topic": output.topic,
        "mode": output.mode,
        "gap_messages": output.gap_messages,
        "gap_ms": output.gap_ms,
        "closed": closed,
    }


def rows_text(rows: Rows, style: Style) -> bytes:
    """The events of one batch: made once for each variant, kept with the batch.

    Only the last one has an id, and only where nothing at or below it is still to come.
    """
    variant = rows.op + style.variant
    text = rows.batch.encoded.get(variant)
    if text is None:
        events = _ROWS[style.form](rows, style)
        text = rows.batch.encoded[variant] = _END.join(_with_id(events, rows, style)) + _END
    return text


def _headed(rows: Rows, style: Style, marks: Marks) -> bytes:
    """The same events behind a session's own lines: whose they are, and on the last one its id."""
    text = rows_text(rows, style)
    low_water = rows.batch.low_water
    id_text = ""
    if low_water is not None:
        id_text = marks.moved((rows.name, rows.topic), Bookmark(rows.epoch, low_water))
    head = b"" if style.form is Format.VALUE else b'data: {"sub":"%b",\n' % rows.name.encode()
    last = b"id: %b\n%b" % (id_text.encode(), head) if id_text else head
    if style.form is Format.BATCH:
        return last + text
    *events, end = text.removesuffix(_END).split(_END)
    return b"".join((*(head + each + _END for each in events), last, end, _END))


_END = b"\n\n"
_FIELD = b"data: "
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")


def _values(rows: Rows, style: Style) -> list[bytes]:
    kind, whole = style.kind, Op.PUBLISH
    field_of = _FIELDS.get(kind, _json_field)
    return [
        field_of(frame.payload) if op_of(frame, whole) is whole else _named(frame, kind)
        for frame in rows.batch.frames
    ]


def _json_field(payload: bytes) -> bytes:
    return _FIELD + payload


def _text_fields(payload: bytes) -> bytes:
    return b"\n".join(_FIELD + line for line in _LINE_ENDS.split(payload))


def _binary_field(payload: bytes) -> bytes:
    return _FIELD + base64.b64encode(payload)


_FIELDS = {Kind.TEXT: _text_fields, Kind.BINARY: _binary_field}


def _named(frame: Frame, kind: Kind) -> bytes:
    """What is no whole value: a delta, or a removal."""
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
    return [_object(_writer(rows, style).batch(rows.batch.frames), style)]


def _object(text: bytes, style: Style) -> bytes:
    """A JSON object as a line; where a session's own line opens it, the rest of it."""
    return _FIELD + (text if style.ids else text[1:])


def _writer(rows: Rows, style: Style) -> EnvelopeWriter:
    shown = style.subscription.shown
    return EnvelopeWriter(rows.topic, rows.epoch, rows.op, kind=style.kind, shown=shown)


def _with_id(events: list[bytes], rows: Rows, style: Style) -> list[bytes]:
    if style.ids and rows.batch.low_water is not None:
        bookmark = Bookmark(rows.epoch, rows.batch.low_water)
        events[-1] = b"id: " + str(bookmark).encode() + b"\n" + events[-1]
    return events


_ROWS = {Format.VALUE: _values, Format.ENVELOPE: _envelopes, Format.BATCH: _batch}
