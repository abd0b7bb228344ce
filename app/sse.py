"""Outputs of the engine as the bytes of server-sent events. Pure; a flush is encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from app.envelope import EnvelopeWriter
from conflation.bookmark import Bookmark
from conflation.outputs import (
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    Rows,
    Unsubscribed,
)

HEARTBEAT = b": heartbeat\n\n"


class Format(StrEnum):
    """How rows are written: the message itself, each in an envelope, or a flush in one event."""

    VALUE = "value"
    ENVELOPE = "envelope"
    BATCH = "batch"


def event(name: str, document: object, *, id_text: str = "", retry_ms: int | None = None) -> bytes:
    """A named event; the document is JSON on one line."""
    lines = [b"event: " + name.encode()]
    if id_text:
        lines.append(b"id: " + id_text.encode())
    if retry_ms is not None:
        lines.append(b"retry: %d" % retry_ms)
    lines.append(b"data: " + msgspec.json.encode(document))
    return b"\n".join(lines) + b"\n\n"


def encode(outputs: Sequence[Output], form: Format, retry_ms: int) -> bytes:
    """Outputs in the order of sending, as one piece for one write."""
    return b"".join(_encode(output, form, retry_ms) for output in outputs)


def _encode(output: Output, form: Format, retry_ms: int) -> bytes:
    match output:
        case Rows():
            return rows_text(output, form)
        case GroupBegin():
            return event("group_begin", {"sub": output.name, "rows": output.rows})
        case GroupEnd():
            document = {"sub": output.name, "rows": output.rows}
            return event("group_end", document, id_text=output.bookmark)
        case Resumed():
            return event("resumed", _resumed(output))
        case Unsubscribed():
            document = {"sub": output.name, "topic": output.topic, "reason": output.reason}
            return event("unsubscribed", document)
        case Goodbye():
            reconnect = output.reason.reconnect
            return event(
                "goodbye", {"reason": output.reason, "reconnect": reconnect}, retry_ms=retry_ms
            )


def _resumed(output: Resumed) -> dict[str, object]:
    return {
        "sub": output.name,
        "mode": output.mode,
        "gap_messages": output.gap_messages,
        "gap_ms": None,
        "closed": None,
    }


def rows_text(rows: Rows, form: Format) -> bytes:
    """The events of one batch: made once for each format, kept with the batch.

    Only the last one has an id, and only where nothing at or below it is still to come.
    """
    variant = form + rows.op
    text = rows.batch.encoded.get(variant)
    if text is None:
        text = rows.batch.encoded[variant] = _ROWS[form](rows) + _END
    return text


_END = b"\n\n"
_FIELD = b"data: "


def _values(rows: Rows) -> bytes:
    texts = [_FIELD + frame.payload for frame in rows.batch.frames]
    return _END.join(_with_id(texts, rows))


def _envelopes(rows: Rows) -> bytes:
    writer = EnvelopeWriter(rows.topic, rows.epoch, rows.op)
    pairs = zip(rows.batch.frames, rows.batch.firsts, strict=True)
    texts = [_FIELD + writer.envelope(frame, first) for frame, first in pairs]
    return _END.join(_with_id(texts, rows))


def _batch(rows: Rows) -> bytes:
    writer = EnvelopeWriter(rows.topic, rows.epoch, rows.op)
    texts = [_FIELD + writer.batch(rows.batch.frames, rows.batch.firsts)]
    return _END.join(_with_id(texts, rows))


def _with_id(texts: list[bytes], rows: Rows) -> list[bytes]:
    if rows.batch.low_water is not None:
        bookmark = Bookmark(rows.epoch, rows.batch.low_water)
        texts[-1] = b"id: " + str(bookmark).encode() + b"\n" + texts[-1]
    return texts


_ROWS = {Format.VALUE: _values, Format.ENVELOPE: _envelopes, Format.BATCH: _batch}
