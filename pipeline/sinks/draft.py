"""A Parquet file on its way: what one attempt of a task writes of a batch, for a driver to name."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.columns.rows import arrow_schema, file_name
from pipeline.lasting import sync
from pipeline.sinks.dead_letters import Burial, DeadLetters
from pipeline.sinks.sink import Batch

COLUMNS = arrow_schema(
    "batch long, row long, key string, value string, removed string, messages long, "
    "first_ms long, due_ns long, file string, block long, position long"
)
REPORT = "messages long, written long, refused long, unfinished string"


@dataclass(frozen=True, slots=True)
class Report:
    """What one task did: messages read, rows written, lines refused; the file, if there is one."""

    messages: int
    written: int
    refused: int
    unfinished: str | None


@dataclass(slots=True)
class Draft:
    """The rows of one batch in a file that readers pass over, beside where they will be.

    `target` is what the file will be called; `attempt` is the task attempt's own number.
    """

    target: Path
    batch: Batch
    attempt: int
    dead_letters: DeadLetters
    messages: int = 0
    written: int = 0
    _file: Any = field(default=None, repr=False)
    _burial: Burial = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._burial = Burial(self.dead_letters, self.batch, self.attempt)

    def take(self, rows: pa.RecordBatch) -> None:
        """Add rows, which come in their order."""
        self.messages += pc.sum(rows.column("messages")).as_py() or 0
        self._burial.take(rows)
        told = rows.filter(pc.is_null(rows.column("refused")))
        if told.num_rows:
            self._open().write_batch(self._columns(told))
            self.written += told.num_rows

    def end(self) -> None:
        """Bring everything to the disk."""
        if self._file is not None:
            self._file.close()
            sync(self._unfinished())
        self._burial.end()

    def report(self) -> pa.RecordBatch:
        """What was done so far: a `Report`, as columns `REPORT`."""
        unfinished = str(self._unfinished()) if self.written else None
        done = Report(self.messages, self.written, self._burial.letters, unfinished)
        return pa.RecordBatch.from_pylist([asdict(done)], schema=arrow_schema(REPORT))

    def _open(self) -> pq.ParquetWriter:
        if self._file is None:
            self._file = pq.ParquetWriter(self._unfinished(), COLUMNS, compression="zstd")
        return self._file

    def _columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        first = self.batch.first_row + self.written
        numbers = range(first, first + rows.num_rows)
        files = [file_name(file or "") or None for file in rows.column("file").to_pylist()]
        made = {
            "batch": pa.array([self.batch.number] * rows.num_rows),
            "row": pa.array(numbers),
            "file": pa.array(files, pa.string()),
        }
        columns = [
            made[name] if name in made else rows.column(name).cast(kind)
            for name, kind in zip(COLUMNS.names, COLUMNS.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)

    def _unfinished(self) -> Path:
        name = f".{self.target.stem}.{self.batch.run}.{self.attempt}"
        return self.target.with_name(name)
