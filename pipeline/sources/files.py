"""NDJSON files as a stream, each line with its place in the order of publication.

Files count in the order in which they came (modification time, then name), lines in the order
of the file. Spark takes files in that order too, so what a batch boundary separates is not
reordered. A line's place is two columns: `part`, the file and the block that a task reads, as
text that sorts by file time, name and block; and `row`, the line's number within the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.definitions.source import FilesSource

NUMBER_DIGITS = 19


def read_files(spark: SparkSession, source: FilesSource) -> DataFrame:
    """A stream of lines: columns `part`, `line` (bytes) and `timestamp_ms` (none)."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    reader = spark.readStream.format("text").option("lineSep", "\n")
    if source.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    block = F.lpad(F.col("_metadata.file_block_start").cast("string"), NUMBER_DIGITS, "0")
    came_ms = F.unix_millis("_metadata.file_modification_time").cast("string")
    # NUL stands in no path, and sorts before whatever a longer name goes on with.
    part = F.concat_ws(
        "\0", F.lpad(came_ms, NUMBER_DIGITS, "0"), F.col("_metadata.file_path"), block
    )
    return reader.load(source.pattern).select(
        part.alias("part"),
        F.col("value").cast("binary").alias("line"),
        F.lit(None).cast("long").alias("timestamp_ms"),
    )


def number_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add `row`: the number, from 1, of each line within its part, for one task's lines.

    A task reads its parts one after the other, each from beginning to end.
    """
    current, row = "", 0
    for batch in batches:
        rows: list[int] = []
        for part in batch.column("part").to_pylist():
            row = row + 1 if part == current else 1
            current = part
            rows.append(row)
        yield batch.append_column("row", pa.array(rows, pa.int64()))
