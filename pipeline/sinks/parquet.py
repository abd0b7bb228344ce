"""Writes the rows of each micro-batch to a folder, as one Parquet file that appears as a whole.

    FOLDER/ticks-1s-9f0c22ab-000000012.parquet

A task on an executor writes it under a name that Spark, pyarrow and others skip; the driver then
renames it, in one step. The name has the stream, its checkpoint's id and the batch's number, so a
repeated batch has no second file. One task writes, so that the rows are in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.pipeline.atomic_files import sync
from tidegate.pipeline.columns.rows import arrow_schema, file_name
from tidegate.pipeline.errors import CheckpointUnusable, DefinitionInvalid, StreamFailed
from tidegate.pipeline.sinks.dead_letters import DeadLetterFile
from tidegate.pipeline.sinks.sink import Batch, BatchResult, wait_until
from tidegate.pipeline.sinks.tasks import Report, reports_of, result_of, task_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# --- an unfinished file: the rows of one attempt of a task, which the driver will name

COLUMNS = arrow_schema(
    "batch long, row long, key string, value string, removed string, messages long, "
    "first_ms long, due_ns long, file string, block long, position long"
)


@dataclass(slots=True)
class UnfinishedFile:
    """The rows of one batch in a file that readers skip, in the folder of the final file.

    `target` is what the file will be called; `attempt` is the task attempt's own number.
    """

    target: Path
    batch: Batch
    attempt: int
    dead_letters: str
    messages: int = 0
    written: int = 0
    _file: Any = field(default=None, repr=False)
    _refused_lines: DeadLetterFile = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._refused_lines = DeadLetterFile(self.dead_letters, self.batch, self.attempt)

    def take(self, rows: pa.RecordBatch) -> None:
        """Add rows, which come in their order."""
        self.messages += pc.sum(rows.column("messages")).as_py() or 0
        self._refused_lines.take(rows)
        sent = rows.filter(pc.is_null(rows.column("refused")))
        if sent.num_rows:
            self._open().write_batch(self._columns(sent))
            self.written += sent.num_rows

    def end(self) -> None:
        """Write everything to the disk."""
        if self._file is not None:
            self._file.close()
            sync(self._unfinished())
        self._refused_lines.end()

    def report(self) -> Report:
        """Return what was done so far, with the file's name if it has rows."""
        names = [str(self._unfinished())] if self.written else []
        return Report(self.messages, self.written, self._refused_lines.count, names)

    def _open(self) -> pq.ParquetWriter:
        if self._file is None:
            self._file = pq.ParquetWriter(self._unfinished(), COLUMNS, compression="zstd")
        return self._file

    def _columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        first = self.batch.first_row + self.written
        numbers = range(first, first + rows.num_rows)
        # `file` sorts by what stands before its last NUL; users only need the name after it.
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
        # A leading dot: Spark and pyarrow skip such names when they list the folder.
        name = f".{self.target.stem}.{self.batch.run}.{self.attempt}"
        return self.target.with_name(name)


PLACES = ["key", "file", "block", "position", "messages"]


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    """The folder of a stream and that of its dead letters (a `Sink`), which all nodes share.

    It travels to the executors.
    """

    folder: str
    stream: str
    dead_letters: str

    def prepare(self) -> Sequence[str]:
        """Create the folder if it is missing; a folder has no epoch.

        Raises:
            DefinitionInvalid: it cannot be made, or is no folder.
        """
        try:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DefinitionInvalid(f"{self.folder}: {error.strerror or error}") from None
        return ()

    def write(self, rows: DataFrame, batch: Batch) -> BatchResult:
        """Write a batch's rows; only counts and the name of a file come to the driver."""

        def write_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            unfinished = UnfinishedFile(self.path(batch), batch, task_attempt(), self.dead_letters)
            for each in batches:
                unfinished.take(each)
            unfinished.end()
            yield unfinished.report().rows()

        # One file for a batch, so that one rename publishes all of it.
        reports = reports_of(rows.repartition(1), write_task)
        ready_at_s = time.monotonic()
        waited_s = wait_until(batch.not_before_s)
        return replace(self.finish(reports, batch), ready_at_s=ready_at_s, waited_s=waited_s)

    def finish(self, reports: Sequence[Report], batch: Batch) -> BatchResult:
        """Give the file that a task has written the batch's name, unless there is such a file.

        Raises:
            CheckpointUnusable: there is, and it has other rows.
            StreamFailed: what an executor has written is not to be seen from here.
        """
        unfinished = [Path(name) for each in reports for name in each.names]
        is_new = all(self._name(path, self.path(batch)) for path in unfinished)
        sent_at_s = time.monotonic() if unfinished else 0.0
        return result_of(reports, is_new=is_new, sent_at_s=sent_at_s)

    def path(self, batch: Batch) -> Path:
        """Return the file of a batch; a stream with a new checkpoint has other files."""
        return Path(self.folder) / f"{self.stream}-{batch.query[:8]}-{batch.label}.parquet"

    def _name(self, unfinished: Path, target: Path) -> bool:
        if not unfinished.exists():
            # The executor has written it: if the driver does not see it, the disk is not shared.
            raise StreamFailed(f"{self.folder} is not the same folder on all nodes")
        is_new = not target.exists()
        if is_new:
            unfinished.replace(target)
            sync(target.parent)
        # A checkpoint restored from a copy numbers new batches like old ones: never overwrite
        # those.
        elif not _same_rows(unfinished, target):
            raise CheckpointUnusable(
                f"{target} has other rows than this batch: the checkpoint is older than the folder"
            )
        # Attempts that Spark discarded have left their files.
        for left in target.parent.glob(f".{target.stem}.*"):
            left.unlink(missing_ok=True)
        return is_new


def _same_rows(one: Path, other: Path) -> bool:
    """Return whether two files are of the same messages; ignore their values."""
    tables = [pq.ParquetFile(path).read(columns=PLACES) for path in (one, other)]
    return bool(tables[0].equals(tables[1]))
