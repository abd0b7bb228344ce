"""The format of a file, as text that Spark passes to the tasks that read its blocks."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from pyarrow.fs import FileSystem

from tidegate.pipeline.files.objects import Field

_S3_OF_HADOOP = re.compile("^s3[an]:")


class BlockFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The format of files, and the options of their file system.

    Attributes:
        format: `ndjson`, `csv` or `parquet`.
        fields: the columns of CSV and Parquet.
        delimiter: the delimiter of CSV.
        has_header: whether the first line of CSV names the columns.
        is_history: leave out rows without a message, and show NaN and infinity as strings.
        options: of Arrow's file system, as the query of a URL.
    """

    format: str
    fields: tuple[Field, ...] = ()
    delimiter: str = ","
    has_header: bool = True
    is_history: bool = False
    options: str = ""

    @property
    def text(self) -> str:
        """The format as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_text(cls, text: str | None) -> BlockFormat:
        """Parse the property `text`; None means NDJSON."""
        return cls("ndjson") if text is None else msgspec.json.decode(text, type=cls)

    def opened(self, address: str) -> tuple[FileSystem, str]:
        """Return Arrow's file system for an address, and the path in it."""
        address = _S3_OF_HADOOP.sub("s3:", address)
        files, path = FileSystem.from_uri(f"{address}?{self.options}" if self.options else address)
        return files, path


def fields_of(schema: str) -> tuple[Field, ...]:
    """Return the columns of a schema, which is Spark's `StructType.json`."""
    columns: list[dict[str, Any]] = msgspec.json.decode(schema)["fields"]
    return tuple(Field(each["name"], each["type"]) for each in columns)
