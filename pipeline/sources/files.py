"""NDJSON, CSV or Parquet files as a stream of PUBLISHED rows, a line or row each.

Files count in the order in which they came (modification time, then name), lines in the order
of the file. Spark takes files in that order too, so what a batch boundary separates is not
reordered. What is gzipped is read as what it holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from keys.errors import JsonInvalid
from pipeline.columns.objects import as_json, beyond_json, quoted
from pipeline.columns.rows import PUBLISHED
from pipeline.definitions.files import FileFormat, FilesSource
from pipeline.errors import DefinitionInvalid, HistoryUnreadable, innermost
from pipeline.sources.csvlines import csv_options, csv_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

TIME_DIGITS = 19
LAST_LETTER = re.compile(r"(\w)(\W*)$")
NOTHING_THERE = {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}


def read_files(spark: SparkSession, source: FilesSource) -> DataFrame:
    """The messages of files (`columns.rows.PUBLISHED`), unchecked.

    `file` is when it came, and NUL.

    Raises:
        DefinitionInvalid: neither the definition nor a file says which columns there are.
        HistoryUnreadable: Spark makes nothing of the files.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    reader = spark.readStream
    if source.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    address = _address(spark, source.pattern)
    match source.format:
        case FileFormat.NDJSON:
            lines = reader.format("text").option("lineSep", "\n").load(address)
            return _published(lines, **_place(), body=F.col("value"))
        case FileFormat.CSV:
            return _of_csv(reader.format("text").load(address), _schema(spark, source), source)
        case FileFormat.PARQUET:
            rows = reader.format("parquet").schema(_schema(spark, source)).load(address)
            return _published(rows, **_place(), **_of_parquet(rows))


def _of_csv(lines: DataFrame, schema: StructType, source: FilesSource) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
    from pyspark.sql.types import StructType

    of_folders = lines.columns[1:]
    place = [column.alias(name) for name, column in _place().items()]
    lines = lines.select(
        *place,
        F.lit(None).cast("long").alias("position"),
        F.col("value").cast("binary").alias("line"),
        *map(quoted, of_folders),
    )
    columns = StructType([column for column in schema if column.name not in of_folders])
    names = ("file", "block", "position", "body", "refused")
    return _published(csv_rows(lines, columns, source), **{name: F.col(name) for name in names})


def _of_parquet(rows: DataFrame) -> dict[str, Column]:
    """What a row says: its column `value`, as archives have it, or else all of its columns."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    kinds = dict(rows.dtypes)
    if kinds.get("value") not in {"string", "binary"}:
        columns = [F.col(quoted(name)) for name in rows.columns]
        return {"body": as_json(columns), "refused": beyond_json(rows.schema, columns)}
    is_removal = F.col("value").isNull()

    def of_removal(name: str) -> Column:
        return F.when(is_removal, F.col(name)) if kinds.get(name) == "string" else F.lit(None)

    removed = of_removal("key")
    no_record = F.when(is_removal & removed.isNull(), F.lit("null").cast("binary"))
    return {
        "time_ms": F.col("timestamp_ms") if "timestamp_ms" in kinds else F.lit(None),
        "key": removed,
        "body": F.coalesce(F.col("value").cast("binary"), no_record),
        "removed": of_removal("reason"),
    }


def _place() -> dict[str, Column]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    came_ms = F.unix_millis("_metadata.file_modification_time").cast("string")
    # NUL stands in no path, and sorts before whatever a longer name goes on with.
    file = F.concat_ws("\0", F.lpad(came_ms, TIME_DIGITS, "0"), F.col("_metadata.file_path"))
    return {"file": file, "block": F.col("_metadata.file_block_start")}


def _published(rows: DataFrame, **told: Column) -> DataFrame:
    """PUBLISHED rows that say this; of the rest nothing is known."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    if "refused" in told:
        told["refused"] = F.concat(F.lit(f"{JsonInvalid.code}: "), told["refused"])
    spelled = (column.split(" ") for column in PUBLISHED.split(", "))
    return rows.select(
        *(told.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in spelled)
    )


def _address(spark: SparkSession, pattern: str) -> str:
    """As Spark takes it: the path of one file as a pattern, since else it must be a folder's."""
    from py4j.protocol import Py4JJavaError

    java: Any = spark.sparkContext
    try:
        path = java._jvm.org.apache.hadoop.fs.Path(pattern)  # noqa: SLF001 - the only way to it
        is_file = path.getFileSystem(java._jsc.hadoopConfiguration()).isFile(path)  # noqa: SLF001 - as well
    except Py4JJavaError:
        return pattern  # which Spark says better
    return LAST_LETTER.sub(r"[\1]\2", pattern) if is_file else pattern


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
        reader = reader.options(**csv_options(source))
    try:
        return reader.load(source.pattern).schema
    except AnalysisException as error:
        if error.getCondition() in NOTHING_THERE:
            raise DefinitionInvalid(
                f"{source.pattern}: no file yet to tell its columns: name them as source.schema"
            ) from error
        raise HistoryUnreadable(
            f"{source.pattern}: Spark cannot read it: {innermost(str(error))}"
        ) from error
    except Exception as error:  # whatever Spark has to say of a file that is of another kind
        raise HistoryUnreadable(f"{source.pattern}: Spark cannot read it") from error
