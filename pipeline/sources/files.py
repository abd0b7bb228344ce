"""NDJSON files as a stream of PUBLISHED rows, a line each.

Files count in the order in which they came (modification time, then name), lines in the order
of the file. Spark takes files in that order too, so what a batch boundary separates is not
reordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.definitions.source import FilesSource

TIME_DIGITS = 19


def read_files(spark: SparkSession, source: FilesSource) -> DataFrame:
    """The lines of files (`columns.rows.PUBLISHED`), unchecked; `file` is when it came, and NUL."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    reader = spark.readStream.format("text").option("lineSep", "\n")
    if source.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    came_ms = F.unix_millis("_metadata.file_modification_time").cast("string")
    # NUL stands in no path, and sorts before whatever a longer name goes on with.
    file = F.concat_ws("\0", F.lpad(came_ms, TIME_DIGITS, "0"), F.col("_metadata.file_path"))
    return reader.load(source.pattern).select(
        file.alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.lit(None).cast("long").alias("position"),
        F.lit(None).cast("long").alias("time_ms"),
        F.lit(None).cast("string").alias("key"),
        F.col("value").cast("binary").alias("body"),
    )
