"""Rows of a topic as format "tidegate" reads them, as rows of an archive."""

from __future__ import annotations

import pyarrow as pa

from keys.archived import COLUMNS

ROWS = pa.schema(
    [
        ("epoch", pa.string()),
        ("position", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("reason", pa.string()),
    ]
)
assert tuple(ROWS.names) == COLUMNS
_READ = ("offset", "timestamp_ms", "key", "value", "removed")


def archive_rows(read: pa.RecordBatch, epoch: str) -> pa.RecordBatch:
    """The same rows with the names of an archive; texts stay as published."""
    columns = [pa.repeat(pa.scalar(epoch), read.num_rows), *(read.column(name) for name in _READ)]
    arrays = [column.cast(kind) for column, kind in zip(columns, ROWS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)
