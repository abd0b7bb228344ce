"""Rows that a stream sends, and a task's file of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.sinks.parquet import UnfinishedFile
from tidegate.pipeline.sinks.sink import Batch

ROWS = [
    {"key": '["a"]', "file": "0\0file:/in/x", "block": 3, "position": 9, "value": b'{"k":"a"}'}
    | {"messages": 4, "first_ms": 17, "due_ns": 18_000_000},
    {"key": '["b"]', "file": "", "block": 0, "position": 2, "removed": "deleted", "messages": 1},
    {"file": "0\0file:/in/x", "block": 3, "position": 10, "value": b"{", "messages": 1}
    | {"refused": "message-invalid: not JSON"},
]


BATCH = Batch(7, 3, "q")


def drafted(
    folder: Path, rows: list[dict[str, object]], attempt: int = 0, batch: Batch = BATCH
) -> UnfinishedFile:
    """A unfinished of rows that come in two pieces."""
    letters = str(folder / "dead")
    unfinished = UnfinishedFile(folder / "s-q-7.parquet", batch, attempt, letters)
    for piece in (rows[:1], rows[1:]):
        unfinished.take(pa.RecordBatch.from_pylist(piece, schema=arrow_schema(SENT)))
    unfinished.end()
    return unfinished
