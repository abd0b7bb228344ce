"""NDJSON envelopes of the journal as rows, values byte for byte as published."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pyarrow as pa

from pipeline.bookmark import split_bookmark
from pipeline.datasource.rows import Row, placed_batch, row_batch
from pipeline.errors import SourceLost


class Envelope(msgspec.Struct, gc=False):
    """One line of the journal; `key` and `value` stay JSON text. A removal has a `reason`."""

    bookmark: str
    value: msgspec.Raw
    key: msgspec.Raw = msgspec.Raw(b"null")
    timestamp: int | float | str | None = None
    reason: str | None = None


_lines = msgspec.json.Decoder(Envelope).decode_lines


def envelope_batch(body: bytes, epoch: str, after: int) -> pa.RecordBatch:
    """The rows of one page, which must continue position `after` of `epoch` without a gap.

    Raises:
        SourceLost: a gap or another epoch: some message would have been passed over.
    """
    envelopes = _lines(body)
    for position, envelope in enumerate(envelopes, start=after + 1):
        if split_bookmark(envelope.bookmark) != (epoch, position):
            raise SourceLost(
                f"expected position {position} of epoch {epoch} in the journal, "
                f"found {envelope.bookmark}: messages between are gone"
            )
    return row_batch([_row(envelope) for envelope in envelopes], epoch, after)


def record_batch(body: bytes, epoch: str, last: int) -> pa.RecordBatch:
    """The records of a state of the world that were published up to position `last`.

    Raises:
        SourceLost: they are of another epoch.
    """
    rows, positions = [], []
    for envelope in _lines(body):
        found, position = split_bookmark(envelope.bookmark)
        if found != epoch:
            raise SourceLost(f"expected records of epoch {epoch}, found {envelope.bookmark}")
        if position <= last:
            rows.append(_row(envelope))
            positions.append(position)
    return placed_batch(rows, epoch, positions)


def _row(envelope: Envelope) -> Row:
    key_text = bytes(envelope.key)
    return Row(
        None if key_text == b"null" else key_text,
        bytes(envelope.value) if envelope.reason is None else None,
        _milliseconds(envelope.timestamp),
        envelope.reason,
    )


def _milliseconds(timestamp: float | str | None) -> int | None:
    if isinstance(timestamp, str):
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    return None if timestamp is None else int(timestamp)
