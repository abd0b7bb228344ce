"""A streaming frame read to its present end, into rows for a test.

Blocks of files are read as the tasks of a stream read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.pipeline.columns.blocks import as_published
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema, file_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def drained(frame: DataFrame, checkpoint: Path | None = None) -> list[Row]:
    """Rows in order of publication; each file's in the order in which they were read."""
    frame = as_published(frame)
    assert frame.schema.names == arrow_schema(PUBLISHED).names
    rows: list[Row] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(rows, key=lambda row: (row.file, row.block, row.position or 0))


def bodies(rows: list[Row]) -> list[str | None]:
    """What the messages say; None for a removal."""
    return [None if row.body is None else bytes(row.body).decode().rstrip("\n") for row in rows]


def names(rows: list[Row]) -> list[str]:
    """The last part of each row's file."""
    return [file_name(row.file).rpartition("/")[2] for row in rows]
