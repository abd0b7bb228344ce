"""NDJSON, CSV or Parquet files as a stream of PUBLISHED rows, or of blocks that tasks read.

Files count in the order in which they came (modification time, then name), lines in the order
of the file. Spark takes files in that order too, so what a batch boundary separates is not
reordered. A compressed file is read as its content. Tasks read NDJSON by themselves.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.types import StringType, StructField, StructType

from tidegate.keys.errors import JsonInvalid
from tidegate.pipeline.columns.blocks import SPACE, blocks_of, lines_by_block
from tidegate.pipeline.columns.history import SHOWN_MAX, as_json, beyond_json, quoted, wrong_line
from tidegate.pipeline.columns.rows import published, shuffle_partitions
from tidegate.pipeline.definitions.source import FileFormat, FilesSource
from tidegate.pipeline.errors import DefinitionInvalid, HistoryUnreadable, innermost

# --- CSV: lines that do not fit keep their bytes and are refused with a reason
#
# Lines are read as text, because Spark's own CSV reader turns any bytes into valid UTF-8.

REFUSED = "_tidegate_refused"  # where Spark puts a line that it could not read
LINE = ("file", "block", "position", "line")


def csv_options(source: FilesSource) -> dict[str, str]:
    """Return the options of Spark's CSV parser."""
    return {
        "sep": source.delimiter,
        "header": str(source.has_header).lower(),
        "escape": '"',  # a quote in quotes is doubled
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": REFUSED,
    }


def without_headers(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], delimiter: str
) -> Iterator[pa.RecordBatch]:
    """Yield one task's lines without each file's first, each at its `position` from 1.

    Raises:
        HistoryInvalid: a file's header has other names, or another order.
    """
    headed = ""  # the part whose header was seen
    for part, row, piece in lines_by_block(batches):
        count = pa.array(np.arange(row + 1, row + 1 + len(piece)), pa.int64())
        at = piece.schema.get_field_index("position")
        piece = piece.set_column(at, piece.schema.field(at), count)
        if part != headed and piece.column("block")[0].as_py() == 0:
            lines: list[bytes] = piece.column("line").to_pylist()
            first = next((at for at, line in enumerate(lines) if line.strip()), None)
            if first is None:
                continue
            _require_header(part, row + first + 1, lines[first], names, delimiter)
            headed = part
            piece = piece.slice(first + 1)
        if len(piece):
            yield piece


def _require_header(
    part: str, number: int, line: bytes, names: Sequence[str], delimiter: str
) -> None:
    """Compare a header as Spark does: ignore case; an empty name counts by its place."""
    text = line.decode(errors="replace")
    [cells] = csv.reader([text], delimiter=delimiter)
    found = [cell or f"_c{at}" for at, cell in enumerate(cells)]
    if [name.lower() for name in found] != [name.lower() for name in names]:
        wanted = delimiter.join(names)[:SHOWN_MAX]
        raise wrong_line(part, number, f"the header is {text[:SHOWN_MAX]}, expected {wanted}")


def csv_rows(lines: DataFrame, columns: StructType, source: FilesSource) -> DataFrame:
    """Add `body` to `lines`, or why they are `refused`; then the body is the line.

    Of `lines` columns are `file`, `block`, `position`, `line`, and those that folders' names make.
    """
    beside = [F.col(quoted(name)) for name in lines.columns[len(LINE) :]]
    if source.has_header:
        cut = partial(without_headers, names=columns.names, delimiter=source.delimiter)
        lines = lines.mapInArrow(cut, lines.schema)
    text = F.col("line").cast("string")
    is_blank = F.length(F.trim(text, F.lit(SPACE))) == 0  # no message, and nothing to refuse
    rows = lines.withColumn("row", _parsed(text, columns, source))
    rows = rows.withColumn("refused", F.when(~is_blank, _reason(text, columns, source)))
    cells = [F.col("row").getField(name).alias(name) for name in columns.names]
    body = as_json([*cells, *beside]).cast("binary")
    return rows.withColumn(
        "body", F.when(is_blank | F.col("refused").isNotNull(), F.col("line")).otherwise(body)
    )


def _parsed(text: Column, columns: StructType, source: FilesSource) -> Column:
    kinds = StructType([*columns, StructField(REFUSED, StringType())])
    return F.from_csv(text, kinds.toDDL(), csv_options(source))


def _reason(text: Column, columns: StructType, source: FilesSource) -> Column:
    """Return why a line is not a row of these columns; null if it is."""
    kinds = dict(source.schema)  # all are texts where it says nothing
    cells = [F.col("row").getField(name) for name in columns.names]
    of_texts = StructType([StructField(name, StringType()) for name in columns.names])
    texts = _parsed(text, of_texts, source)
    wrong = [
        F.when(
            cell.isNull() & texts.getField(name).isNotNull(),
            f"{name[:SHOWN_MAX]} is no {kinds.get(name)}",
        )
        for name, cell in zip(columns.names, cells, strict=True)
    ]
    no_row = F.lit(f"no row of the columns {', '.join(columns.names)[:SHOWN_MAX]}")
    why = F.when(texts.getField(REFUSED).isNull(), F.coalesce(*wrong, no_row)).otherwise(no_row)
    return (
        F.when(~F.is_valid_utf8(text), "not valid UTF-8")
        .when(F.col("row").getField(REFUSED).isNotNull(), why)
        .otherwise(beyond_json(columns, cells))
    )


# As Spark makes it, and asks for it in streams; it does not read a content that nobody selects.
BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"
TIME_DIGITS = 19
LAST_LETTER = re.compile(r"(\w)(\W*)$")
NOTHING_THERE = {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}


def read_files(spark: SparkSession, source: FilesSource) -> DataFrame:
    """Return the messages of files (`columns.rows.PUBLISHED`), unchecked.

    Of local NDJSON return where they are (`columns.blocks.BLOCKS`), for tasks to read. `file` is
    when it came, and NUL.

    Raises:
        DefinitionInvalid: neither the definition nor a file says which columns there are.
        HistoryUnreadable: Spark makes nothing of the files.
    """
    reader = spark.readStream
    if source.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    address, is_local = _address(spark, source.pattern)
    match source.format:
        # Elsewhere only Spark's configuration knows how to get in.
        case FileFormat.NDJSON if is_local:
            files = reader.format("binaryFile").schema(BINARY_FILE).load(address)
            return blocks_of(files, _place()["file"], F.col("length"), shuffle_partitions(spark))
        case FileFormat.NDJSON:
            lines = reader.format("text").option("lineSep", "\n").load(address)
            return _published(lines, **_place(), body=F.col("value"))
        case FileFormat.CSV:
            return _of_csv(reader.format("text").load(address), _schema(spark, source), source)
        case FileFormat.PARQUET:
            rows = reader.format("parquet").schema(_schema(spark, source)).load(address)
            return _published(rows, **_place(), **_of_parquet(rows))


def _of_csv(lines: DataFrame, schema: StructType, source: FilesSource) -> DataFrame:
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
    """Return a row's message: its column `value`, as in archives, or else all its columns."""
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
    came_ms = F.unix_millis("_metadata.file_modification_time").cast("string")
    # No path has a NUL, and it sorts before every character with which a longer name continues.
    file = F.concat_ws("\0", F.lpad(came_ms, TIME_DIGITS, "0"), F.col("_metadata.file_path"))
    return {"file": file, "block": F.col("_metadata.file_block_start")}


def _published(rows: DataFrame, **columns: Column) -> DataFrame:
    """Return PUBLISHED rows with these columns; reasons of a refusal get the gateway's code."""
    if "refused" in columns:
        columns["refused"] = F.concat(F.lit(f"{JsonInvalid.code}: "), columns["refused"])
    return published(rows, **columns)


def _address(spark: SparkSession, pattern: str) -> tuple[str, bool]:
    """Return the path as Spark takes it, and whether it is local.

    One file becomes a pattern, since Spark expects a folder.
    """
    java: Any = spark.sparkContext
    try:
        path = java._jvm.org.apache.hadoop.fs.Path(pattern)  # noqa: SLF001 - PySpark has no public name for Hadoop's classes
        files = path.getFileSystem(java._jsc.hadoopConfiguration())  # noqa: SLF001 - PySpark has no public name for Hadoop's configuration
        is_file, is_local = files.isFile(path), files.getUri().getScheme() == "file"
    except Py4JJavaError:
        return pattern, False  # which Spark says better
    return LAST_LETTER.sub(r"[\1]\2", pattern) if is_file else pattern, is_local


def _schema(spark: SparkSession, source: FilesSource) -> StructType:
    """Return the columns of the definition, or those of the files that are there."""
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
                f"{source.pattern}: no file shows the columns yet: name them in source.schema"
            ) from error
        raise HistoryUnreadable(
            f"{source.pattern}: Spark cannot read it: {innermost(str(error))}"
        ) from error
    except Exception as error:  # whatever Spark has to say of a file that is of another kind
        raise HistoryUnreadable(f"{source.pattern}: Spark cannot read it") from error
