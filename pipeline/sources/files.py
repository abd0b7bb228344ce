"""NDJSON, CSV or Parquet files as a stream of blocks that tasks read.

Files count in the order in which they came (modification time, then name), lines in the order
of the file. Spark takes files in that order too, so what a batch boundary separates is not
reordered. A compressed file is read as its content.

Tasks open local files, and those at addresses for which the source has options of Arrow. From
other addresses, which only Spark's configuration can enter, Spark hands on lines of text (PUBLISHED
rows) and whole files of Parquet.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from urllib.parse import urlencode

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from tidegate.pipeline.columns.blocks import blocks_of, csv_published
from tidegate.pipeline.columns.rows import PUBLISHED, published, shuffle_partitions
from tidegate.pipeline.definitions.source import FileFormat, FilesSource
from tidegate.pipeline.errors import DefinitionInvalid, HistoryUnreadable, innermost
from tidegate.pipeline.files.block_format import BlockFormat, fields_of
from tidegate.pipeline.files.objects import Field

# As Spark makes it, and asks for it in streams; it does not read a content that nobody selects.
BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"
TIME_DIGITS = 19
LAST_LETTER = re.compile(r"(\w)(\W*)$")
NOTHING_THERE = {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}


def read_files(spark: SparkSession, source: FilesSource) -> DataFrame:
    """Return where the messages of files are (`columns.blocks.BLOCKS`), for tasks to read.

    Of text that only Spark can reach return the messages, unchecked (PUBLISHED). `file` is when it
    came, and NUL.

    Raises:
        DefinitionInvalid: neither the definition nor a file says which columns there are.
        HistoryUnreadable: Spark makes nothing of the files.
    """
    reader = spark.readStream
    if source.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    address, is_local = _address(spark, source.pattern)
    can_open = is_local or source.arrow is not None
    if not can_open and source.format is not FileFormat.PARQUET:
        return _lines(spark, reader, address, source)
    files = reader.format("binaryFile").schema(BINARY_FILE).load(address)
    of_folders = files.columns[len(BINARY_FILE.split(", ")) :]
    if source.format is FileFormat.NDJSON:
        of_folders = []  # whose lines stay as they are
    return blocks_of(
        files,
        _place()["file"],
        F.col("length"),
        shuffle_partitions(spark),
        block_format=_block_format(spark, source, of_folders),
        folder_fields=_folder_fields(of_folders),
        content=None if can_open else F.col("content"),
    )


def _lines(
    spark: SparkSession, reader: DataStreamReader, address: str, source: FilesSource
) -> DataFrame:
    is_csv = source.format is FileFormat.CSV
    # In CSV a return ends a line too, as it does without this option.
    options = {} if is_csv else {"lineSep": "\n"}
    lines = reader.format("text").options(**options).load(address)
    if not is_csv:
        return published(lines, **_place(), body=F.col("value"))
    of_folders = lines.columns[1:]
    folder_fields = _folder_fields(of_folders)
    given = lines.select(
        *(column.alias(name) for name, column in _place().items()),
        F.col("value").cast("binary").alias("body"),
        (F.lit(None).cast("string") if folder_fields is None else folder_fields).alias(
            "folder_fields"
        ),
    )
    read = partial(csv_published, block_format=_block_format(spark, source, of_folders))
    return given.mapInArrow(read, PUBLISHED)


def _place() -> dict[str, Column]:
    came_ms = F.unix_millis("_metadata.file_modification_time").cast("string")
    # No path has a NUL, and it sorts before every character with which a longer name continues.
    file = F.concat_ws("\0", F.lpad(came_ms, TIME_DIGITS, "0"), F.col("_metadata.file_path"))
    return {"file": file, "block": F.col("_metadata.file_block_start")}


def _folder_fields(of_folders: list[str]) -> Column | None:
    """Return the columns that the names of folders make, as an object; None without such."""
    columns = [F.col("`" + name.replace("`", "``") + "`") for name in of_folders]
    return F.to_json(F.struct(*columns)) if columns else None


def _block_format(spark: SparkSession, source: FilesSource, of_folders: list[str]) -> BlockFormat:
    options = urlencode(source.arrow or ())
    if source.format is FileFormat.NDJSON:
        return BlockFormat(source.format, options=options)
    fields = [Field(*column) for column in source.schema] or fields_of(
        _schema(spark, source).json()
    )
    return BlockFormat(
        source.format,
        tuple(field for field in fields if field.name not in of_folders),
        source.delimiter,
        source.has_header,
        options=options,
    )


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
    """Return the columns of the files that are there."""
    reader = spark.read.format(source.format)
    if source.format is FileFormat.CSV:
        header = str(source.has_header).lower()
        reader = reader.options(sep=source.delimiter, header=header, escape='"')
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
