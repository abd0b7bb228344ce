"""NDJSON envelopes of the journal as Arrow rows, values byte for byte as published."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pyarrow as pa

from pipeline.bookmark import split_bookmark
from pipeline.errors import SourceLost

ROWS = pa.schema(
    [
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("timestamp_ms", pa.int64()),
        ("bookmark", pa.string()),
    ]
)


class Envelope(msgspec.Struct, gc=False):
    """One line of the journal; `key` and `value` stay JSON text."""

    bookmark: str
    value: msgspec.Raw
    key: msgspec.Raw = msgspec.Raw(b"null")
    timestamp: int | float | str | None = None


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
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(after + 1, after + 1 + len(envelopes)), pa.int64()),
            pa.array([_text(envelope.key) for envelope in envelopes], pa.string()),
            pa.array([bytes(envelope.value) for envelope in envelopes], pa.string()),
            pa.array([_milliseconds(envelope.timestamp) for envelope in envelopes], pa.int64()),
            pa.array([envelope.bookmark for envelope in envelopes], pa.string()),
        ],
        schema=ROWS,
    )


def _text(raw: msgspec.Raw) -> bytes | None:
    text = bytes(raw)
    return None if text == b"null" else text


def _milliseconds(timestamp: float | str | None) -> int | None:
    if isinstance(timestamp, str):
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    return None if timestamp is None else int(timestamp)
