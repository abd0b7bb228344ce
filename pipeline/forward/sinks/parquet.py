"""Files of Parquet, each whole when it has its name, with every row exactly once.

A file is written under another name. Then the position is noted with the name that the file is to
get, and at last the file gets it. A start that finds a position whose file has still the other name
does the last step; a file that no position names is written again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.pipeline import atomic_files
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.forward.position import PositionFile
from tidegate.pipeline.forward.sinks.parquet_columns import (
    Column,
    declared_columns,
    json_column,
    named_columns,
)
from tidegate.pipeline.forward.sinks.shared import dated, is_dated, unwritable
from tidegate.pipeline.forward.target import Patience, Refusal, Row

ROWS_MAX = 100_000
SECONDS_MAX = 60
BYTES_MAX = 64 * 1024 * 1024
"""Of the values of a file in JSON, which are held until it is written."""
ENVELOPE = {"_op": "op", "_key": "key", "_bookmark": "bookmark", "_reason": "reason"}
"""Columns of every file, and the fields of an envelope that they have."""
UNFINISHED = ".unfinished"
VALUE = "_value"
OTHERS = "_others"
TEXTS = ("op", "bookmark", "reason")
_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """The table `sink` of kind parquet.

    `columns` is None for those of the topic's schema; where they are empty, the value is a column
    of JSON texts.
    """

    path: Path
    columns: tuple[Column, ...] | None
    rows_max: int
    seconds_max: int
    kind: ClassVar[str] = "parquet"
    keeps_position: ClassVar[bool] = True
    knows_message_ids: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The path that the names of files are made of."""
        return f"parquet {self.path}"

    def target(self, name: str, patience: Patience) -> ParquetTarget:
        """Return a target that has written no file yet."""
        return ParquetTarget(self)


def read_sink(table: TomlTable, folder: Path) -> ParquetSink:
    """Read the table; a relative path is below `folder`."""
    columns: tuple[Column, ...] | None = None
    if table.has("columns"):
        columns = named_columns(
            table.table("columns", 'a table such as {price = "decimal(18, 4)"}')
        )
    return ParquetSink(
        path=(folder / table.checked("path", str.strip, "the path of a file")).resolve(),
        columns=columns,
        rows_max=table.count("rows_max") or ROWS_MAX,
        seconds_max=table.count("seconds_max") or SECONDS_MAX,
    )


class ParquetTarget:
    """Holds rows until they make a file (a `PositionedTarget`, and a `DeclaredTarget`)."""

    def __init__(self, sink: ParquetSink) -> None:
        self._sink = sink
        self._columns = sink.columns or ()
        self._has_others = False
        self._position: PositionFile | None = None
        self._written: list[Record] = []
        self._held: list[Record] = []
        self._bytes = 0
        self._begun_s = 0.0
        self._after = ""

    def open(self) -> None:
        """Lock the position, so that no other process writes files of this name.

        Raises:
            InUse: another process has locked it.
        """
        path = self._sink.path
        self._position = PositionFile(path.with_name(f"{path.name}.position"))

    def declare(self, schema: object) -> None:
        """Take the columns of the topic's schema, unless the definition names some."""
        if self._sink.columns is None:
            self._columns = declared_columns(schema)
            self._has_others = bool(self._columns)

    def resume(self, identity: str) -> str:
        """Return the position, and finish what a kill has left unfinished.

        Raises:
            CheckpointUnusable: the position cannot be read.
            EndpointUnavailable: a file cannot be renamed.
        """
        path = self._sink.path
        self._after = self._noted.resume(identity)
        try:
            if self._noted.file:
                with suppress(FileNotFoundError):  # it has got its name
                    _publish(path.with_name(self._noted.file))
            for left in path.parent.glob(f".*{UNFINISHED}"):
                # Not those of another forward, such as to prices-eu.parquet in the same folder.
                if is_dated(left.name[1:].removesuffix(UNFINISHED), path):
                    left.unlink()
        except OSError as error:
            raise unwritable(path, error) from error
        return self._after

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Hold rows; those that the columns do not take are returned."""
        self._written = []
        refused: list[Refusal] = []
        for row in rows:
            try:
                self._written.append(self._record(row))
            except ValueError as error:
                refused.append(Refusal(row, str(error)))
            self._bytes += len(row.fields.get("value", b""))
        return refused

    def note(self, after: str) -> None:
        """Write a file if there are rows enough, or if the first of them is old enough.

        Raises:
            EndpointUnavailable: it cannot be written.
        """
        if self._written and not self._held:
            self._begun_s = time.monotonic()
        self._held += self._written
        self._written = []
        self._after = after
        if not self._held:
            self._noted.note(after)
            return
        sink = self._sink
        is_large = len(self._held) >= sink.rows_max or self._bytes >= BYTES_MAX
        if is_large or time.monotonic() - self._begun_s >= sink.seconds_max:
            self._finish()

    def close(self) -> None:
        """Write what is held, and let another process write files of this name."""
        if self._position is None:
            return
        try:
            if self._held:
                self._finish()
        finally:
            self._position.close()

    @property
    def _noted(self) -> PositionFile:
        assert self._position is not None, "it was opened"
        return self._position

    def _record(self, row: Row) -> Record:
        record: Record = {}
        for name, field in ENVELOPE.items():
            if field in row.fields:
                text = bytes(row.fields[field])
                is_text = field in TEXTS
                record[name] = msgspec.json.decode(text) if is_text else text.decode()
        if "value" not in row.fields:
            return record
        text = bytes(row.fields["value"])
        if not self._columns:
            record[VALUE] = text.decode()
            return record
        if text == b"null":  # of a removal whose record is not known any more
            return record
        try:
            fields = _DECODER.decode(text)
        except msgspec.DecodeError:
            raise ValueError("its value is not an object") from None
        for column in self._columns:
            if column.name in fields:
                record[column.name] = column.read(bytes(fields.pop(column.name)))
        if fields and self._has_others:
            record[OTHERS] = msgspec.json.encode(fields).decode()
        return record

    def _finish(self) -> None:
        path = dated(self._sink.path)
        try:
            with _unfinished(path).open("wb") as file:
                pq.write_table(self._table(), file)
                file.flush()
                os.fsync(file.fileno())
            atomic_files.sync(path.parent)
            self._noted.note(self._after, path.name)
            _publish(path)
        except OSError as error:
            raise unwritable(path, error) from error
        self._held = []
        self._bytes = 0

    def _table(self) -> pa.Table:
        fields = [pa.field(name, pa.string()) for name in ENVELOPE]
        fields += [each.field for each in self._columns or (json_column(VALUE),)]
        if self._has_others:
            fields.append(json_column(OTHERS).field)
        return pa.Table.from_pylist(self._held, pa.schema(fields))


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}{UNFINISHED}")


def _publish(path: Path) -> None:
    """Give a file its name."""
    _unfinished(path).replace(path)
    atomic_files.sync(path.parent)
