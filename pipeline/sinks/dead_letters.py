"""Dead letters: what a stream read and could not take, as NDJSON, one file a batch.

A letter is `{"reason", "file", "row", "line"}`; `row` counts the lines of the file's block. The
file is named by its batch, so a batch that comes again writes the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.rows import file_name
from tidegate.pipeline.sinks.sink import Batch

_COLUMNS = ["refused", "file", "position", "value"]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A folder that all nodes share."""

    folder: str

    def path(self, batch: Batch) -> Path:
        """The file of a batch."""
        return Path(self.folder) / f"batch-{batch.label}.ndjson"


@dataclass(slots=True)
class Burial:
    """The letters of one batch, written by one attempt of a task; there is all of them, or none."""

    to: DeadLetters
    batch: Batch
    attempt: int
    letters: int = 0
    _file: BinaryIO | None = field(default=None, repr=False)

    def take(self, rows: pa.RecordBatch) -> None:
        """Write down those of some rows that were refused."""
        columns = rows.select(_COLUMNS).filter(pc.is_valid(rows.column("refused")))
        for refused, file, position, value in zip(
            *(column.to_pylist() for column in columns), strict=True
        ):
            self._open().write(_letter(refused, file, position, value))
            self.letters += 1

    def end(self) -> None:
        """Give the file its name."""
        if self._file is not None:
            self._file.close()
            self._unfinished().replace(self.to.path(self.batch))
            self._file = None

    def _open(self) -> BinaryIO:
        if self._file is None:
            Path(self.to.folder).mkdir(parents=True, exist_ok=True)
            self._file = self._unfinished().open("wb")
        return self._file

    def _unfinished(self) -> Path:
        suffix = f".{self.batch.run}.{self.attempt}.unfinished"
        return self.to.path(self.batch).with_suffix(suffix)


def attempt() -> int:
    """The number of this attempt of a task, which no other has; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.taskAttemptId() if context else 0


def _letter(refused: str, file: str | None, position: int, value: bytes) -> bytes:
    letter: dict[str, Any] = {
        "reason": refused,
        "file": file_name(file or "") or None,
        "row": position,
        "line": value.decode("utf-8", "backslashreplace"),
    }
    return msgspec.json.encode(letter) + b"\n"
