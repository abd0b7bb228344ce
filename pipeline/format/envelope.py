"""NDJSON envelopes of the journal as rows, values byte for byte as published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.text.bookmark import join_bookmark, split_bookmark
from tidegate.keys.text.time import parse_time
from tidegate.pipeline.columns.rows import arrow_schema, shard_of
from tidegate.pipeline.errors import SourceLost

# --- rows of format "tidegate": a message or removal each, as columns

SCHEMA = "offset long, key string, value string, timestamp_ms long, bookmark string, removed string"
ROWS = arrow_schema(SCHEMA)


class Row(NamedTuple):
    """One message, or with a reason in `removed` a removal: then its value is None.

    `key` and `value` are JSON texts; `key` is None on a topic without one.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    removed: str | None


def row_batch(rows: Sequence[Row], epoch: str, after: int) -> pa.RecordBatch:
    """Return rows at contiguous positions after `after`, as `ROWS`."""
    return placed_batch(rows, epoch, range(after + 1, after + 1 + len(rows)))


def placed_batch(rows: Sequence[Row], epoch: str, positions: Sequence[int]) -> pa.RecordBatch:
    """Return rows at these positions, as `ROWS`."""
    keys, values, times, reasons = zip(*rows, strict=True) if rows else ((), (), (), ())
    return column_batch((keys, values, times, reasons), epoch, positions)


def column_batch(
    columns: tuple[Sequence[bytes | str | None], Sequence[bytes | None], Sequence[int | None], Any],
    epoch: str,
    positions: Sequence[int],
) -> pa.RecordBatch:
    """Return rows at these positions, as `ROWS`.

    `columns` are keys, values, times and reasons. The reasons are a sequence, or an array of Arrow.
    """
    keys, values, times, reasons = columns
    offsets = pa.array(positions, pa.int64())
    # In Arrow: a text for each row, made in Python, costs as much as the rest of the row.
    bookmarks = pc.binary_join_element_wise(
        join_bookmark(epoch, 0)[:-1], offsets.cast("string"), ""
    )
    found = (offsets, keys, values, times, bookmarks, reasons)
    return pa.RecordBatch.from_arrays(
        [
            column if isinstance(column, pa.Array) else pa.array(column, kind)
            for column, kind in zip(found, ROWS.types, strict=True)
        ],
        schema=ROWS,
    )


def of_shard(batch: pa.RecordBatch, shard: int, shards: int) -> pa.RecordBatch:
    """Return the rows whose keys belong to a shard; rows without key belong to the first one."""
    homes = (
        0 if text is None else shard_of(text, shards) for text in batch.column("key").to_pylist()
    )
    return batch.filter(pa.array([home == shard for home in homes], pa.bool_()))


# `gc=False`: an envelope refers to nothing that could refer back to it, and the collector would
# otherwise walk thousands of them in each page.
class Envelope(msgspec.Struct, gc=False):
    """One line of the journal; `key` and `value` stay JSON text. A removal has a `reason`."""

    bookmark: str
    value: msgspec.Raw
    key: msgspec.Raw = msgspec.Raw(b"null")
    timestamp: int | float | str | None = None
    reason: str | None = None


_lines = msgspec.json.Decoder(Envelope).decode_lines


def envelope_batch(body: bytes, epoch: str, after: int) -> pa.RecordBatch:
    """Return the rows of one page, which must continue position `after` without a gap.

    Raises:
        SourceLost: a gap or another epoch: some message would have been passed over.
    """
    envelopes = _lines(body)
    for position, envelope in enumerate(envelopes, start=after + 1):
        # The gateway answers from the oldest message it has; only this check notices a gap.
        found = split_bookmark(envelope.bookmark)
        if found != (epoch, position):
            gone = f"positions {position} to {found[1] - 1} left the journal before they were read"
            raise SourceLost(
                f"expected position {position} of epoch {epoch} in the journal, "
                f"found {envelope.bookmark}" + (f": {gone}" if found[0] == epoch else "")
            )
    return row_batch([_row(envelope) for envelope in envelopes], epoch, after)


def record_batch(body: bytes, epoch: str, last: int) -> pa.RecordBatch:
    """Return the records of a state of the world that were published up to position `last`.

    Raises:
        SourceLost: they are of another epoch.
    """
    rows, positions = [], []
    for envelope in _lines(body):
        found, position = split_bookmark(envelope.bookmark)
        # The topic began again between planning and reading: these records are of another history.
        if found != epoch:
            raise SourceLost(f"expected records of epoch {epoch}, found {envelope.bookmark}")
        # Records that changed after position `last` are read from the journal instead.
        if position <= last:
            rows.append(_row(envelope))
            positions.append(position)
    return placed_batch(rows, epoch, positions)


def _row(envelope: Envelope) -> Row:
    key_text = bytes(envelope.key)
    # `msgspec.Raw` is the text as it stands in the line: a number keeps its digits.
    return Row(
        None if key_text == b"null" else key_text,
        bytes(envelope.value) if envelope.reason is None else None,
        _milliseconds(envelope.timestamp),
        envelope.reason,
    )


def _milliseconds(timestamp: float | str | None) -> int | None:
    if isinstance(timestamp, str):
        return parse_time(timestamp)
    return None if timestamp is None else int(timestamp)
