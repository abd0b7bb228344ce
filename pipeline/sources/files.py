"""NDJSON, CSV or Parquet files as a stream of PUBLISHED rows, a line or row each.

Files count in the order in which they came (modification time, then name), lines in the order
of the file. Spark takes files in that order too, so what a batch boundary separates is not
reordered. What is gzipped is read as what it holds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pipeline.definitions.files import FileFormat, FilesSource
from pipeline.errors import DefinitionInvalid, HistoryUnreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

TIME_DIGITS = 19
REFUSED = "_tidegate_refused"  # the text of a line of CSV that is no row


def read_files(spark: SparkSession, source: FilesSource) -> DataFrame:
    """The messages of files (`columns.rows.PUBLISHED`), unchecked.

    `file` is when it came, and NUL.

    Raises:
        DefinitionInvalid: neither the definition nor a file says which columns there are.
        HistoryUnreadable: Spark makes nothing of the files.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    rows = _opened(spark, source)
    body, time_ms, key = _columns(rows, source)
    came_ms = F.unix_millis("_metadata.file_modification_time").cast("string")
    # NUL stands in no path, and sorts before whatever a longer name goes on with.
    file = F.concat_ws("\0", F.lpad(came_ms, TIME_DIGITS, "0"), F.col("_metadata.file_path"))
    return rows.select(
        file.alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.lit(None).cast("long").alias("position"),
        time_ms.alias("time_ms"),
        key.alias("key"),
        body.alias("body"),
        F.lit(None).cast("string").alias("removed"),
    )


def _opened(spark: SparkSession, source: FilesSource) -> DataFrame:
    """A stream of the files' own rows."""
    reader = spark.readStream
    if source.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    match source.format:
        case FileFormat.NDJSON:
            return reader.format("text").option("lineSep", "\n").load(source.pattern)
        case FileFormat.CSV:
            columns = _schema(spark, source).add(REFUSED, "string")
            options = _csv_options(source)
            return reader.format("csv").options(**options).schema(columns).load(source.pattern)
        case FileFormat.PARQUET:
            return reader.format("parquet").schema(_schema(spark, source)).load(source.pattern)


def _columns(rows: DataFrame, source: FilesSource) -> tuple[Column, Column, Column]:
    """The body of a row, its time in ms, and the record that it removes."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    nothing = F.lit(None)
    kinds = dict(rows.dtypes)
    time_ms, key_text = nothing, nothing
    match source.format:
        case FileFormat.NDJSON:
            body = F.col("value")
        case FileFormat.CSV:
            # A line that is no row stays as it is: no record, so a dead letter.
            body = F.coalesce(F.col(REFUSED), _as_json(rows, kinds.keys() - {REFUSED}))
        case FileFormat.PARQUET if kinds.get("value") in {"string", "binary"}:
            time_ms = F.col("timestamp_ms") if "timestamp_ms" in kinds else nothing
            key_text = F.col("key") if kinds.get("key") == "string" else nothing
            key_text = F.when(F.col("value").isNull(), key_text)
            no_record = F.when(key_text.isNull(), F.lit("null").cast("binary"))
            body = F.coalesce(F.col("value").cast("binary"), no_record)
        case FileFormat.PARQUET:
            body = _as_json(rows, kinds.keys())
    return body.cast("binary"), time_ms.cast("long"), key_text.cast("string")


def _as_json(rows: DataFrame, names: Collection[str]) -> Column:
    """A row as a JSON object of these of its columns, in its order; what is null is left out."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    quoted = ("`" + name.replace("`", "``") + "`" for name in rows.columns if name in names)
    return F.to_json(F.struct(*map(F.col, quoted)))


def _schema(spark: SparkSession, source: FilesSource) -> StructType:
    """The columns that the definition names, or those of what is there."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    if source.schema:
        columns = StructType()
        for name, kind in source.schema:
            columns = columns.add(name, kind)
        return columns
    reader = spark.read.format(source.format)
    if source.format is FileFormat.CSV:
        reader = reader.options(**_csv_options(source))
    try:
        return reader.load(source.pattern).schema
    except AnalysisException as error:
        raise DefinitionInvalid(
            f"{source.pattern}: no file yet to tell its columns: name them as source.schema"
        ) from error
    except Exception as error:  # whatever Spark has to say of a file that is of another kind
        raise HistoryUnreadable(f"{source.pattern}: Spark cannot read it") from error


def _csv_options(source: FilesSource) -> dict[str, str]:
    return {
        "sep": source.delimiter,
        "header": str(source.has_header).lower(),
        # A file whose header says other columns than the schema is told, not misread.
        "enforceSchema": "false",
        "escape": '"',  # a quote in quotes is doubled
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": REFUSED,
    }
