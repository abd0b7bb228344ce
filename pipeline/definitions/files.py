"""A source of kind `files`: what is in them, and where they arrive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pipeline.definitions.names import TOPIC
from pipeline.definitions.tomltable import TomlTable

COLUMN_TYPE = re.compile(
    r"string|boolean|int|long|float|double|date|timestamp|decimal\([0-9]{1,2},[0-9]{1,2}\)"
)
COLUMN_TYPES = "one of string, boolean, int, long, float, double, date, timestamp, decimal(10,2)"


class FileFormat(StrEnum):
    """What a file is made of; each may be gzipped as well, but for Parquet."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"

    @classmethod
    def of_name(cls, pattern: str) -> FileFormat:
        """What the ending of a path says; NDJSON where it says nothing."""
        ending = Path(pattern.removesuffix(".gz")).suffix
        return {".csv": cls.CSV, ".parquet": cls.PARQUET}.get(ending, cls.NDJSON)


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Files matching `pattern`; `topic` is what the sink names as its source, if any.

    `schema` are columns and their types, as Spark spells them; empty where the files say them.
    """

    pattern: str
    topic: str | None = None
    files_per_batch: int | None = None
    format: FileFormat = FileFormat.NDJSON
    schema: tuple[tuple[str, str], ...] = ()
    delimiter: str = ","
    has_header: bool = True

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it."""
        kind = "" if self.format is FileFormat.NDJSON else f"{self.format} "
        return f"{kind}files {self.pattern}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> FilesSource:
        """From its table; a path that is no address is seen from `folder`."""
        pattern = table.checked("path", str.strip, "a path or pattern, such as in/*.ndjson")
        content = _format(table, pattern)
        is_csv = content is FileFormat.CSV
        has_header = table.flag("header", default=True) if is_csv else True
        schema = () if content is FileFormat.NDJSON else _schema(table)
        if not has_header and not schema:
            raise table.missing("schema", "the columns of files without a header")
        return cls(
            pattern=pattern if "://" in pattern else str(folder.resolve() / pattern),
            topic=_topic(table) if table.has("topic") else None,
            files_per_batch=stream.count("files_per_batch"),
            format=content,
            schema=schema,
            delimiter=_delimiter(table) if is_csv else ",",
            has_header=has_header,
        )


def _topic(table: TomlTable) -> str:
    return table.checked("topic", TOPIC.fullmatch, "a topic name")


def _format(table: TomlTable, pattern: str) -> FileFormat:
    text = table.text("format", default=FileFormat.of_name(pattern))
    if text not in set(FileFormat):
        raise table.wrong("format", "ndjson, csv or parquet", text)
    return FileFormat(text)


def _delimiter(table: TomlTable) -> str:
    delimiter = table.text("delimiter", default=",")
    if len(delimiter) != 1 or delimiter in '"\\\r\n':
        raise table.wrong("delimiter", "one character, such as ; or \\t", delimiter)
    return delimiter


def _schema(table: TomlTable) -> tuple[tuple[str, str], ...]:
    """Columns in their order."""
    columns = table.take("schema", dict, 'columns, such as {symbol = "string"}') or {}
    for column, kind in columns.items():
        if not isinstance(kind, str) or not COLUMN_TYPE.fullmatch(kind):
            raise table.wrong(f"schema.{column}", COLUMN_TYPES, kind)
    return tuple(columns.items())
