"""Rows of format "tidegate": a message or removal each, as columns."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from pipeline.bookmark import join_bookmark

SCHEMA = "offset long, key string, value string, timestamp_ms long, bookmark string, removed string"
ROWS = pa.schema(
    [
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("timestamp_ms", pa.int64()),
        ("bookmark", pa.string()),
        ("removed", pa.string()),
    ]
)


class Row(NamedTuple):
    """One message, or with a reason in `removed` a removal: then its value is None.

    `key` and `value` are JSON texts; `key` is None on a topic without one.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    removed: str | None


def row_batch(rows: Sequence[Row], epoch: str, after: int) -> pa.RecordBatch:
    """Rows at contiguous positions behind `after`, as `ROWS`."""
    return placed_batch(rows, epoch, range(after + 1, after + 1 + len(rows)))


def placed_batch(rows: Sequence[Row], epoch: str, positions: Sequence[int]) -> pa.RecordBatch:
    """Rows at these positions, as `ROWS`."""
    keys, values, times, reasons = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = (
        positions,
        keys,
        values,
        times,
        [join_bookmark(epoch, position) for position in positions],
        reasons,
    )
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, ROWS.types, strict=True)],
        schema=ROWS,
    )


def of_shard(batch: pa.RecordBatch, shard: int, shards: int) -> pa.RecordBatch:
    """The rows whose keys belong to a shard; of a topic without key all belong to the first."""
    keys = batch.column("key").to_pylist()
    return batch.filter(pa.array([shard_of(text, shards) == shard for text in keys], pa.bool_()))


def shard_of(key_text: str | None, shards: int) -> int:
    """Which of so many shards has a key; the same in every process."""
    return 0 if key_text is None else zlib.crc32(key_text.encode()) % shards
