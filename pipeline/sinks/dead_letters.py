"""Dead letters: lines that a stream read and refused, as NDJSON, one file for each batch.

A letter is `{"reason", "file", "row", "line"}`; `row` counts the lines of the block. The name of a
file is that of its batch, so that a repeated batch writes the same file.
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


@dataclass(slots=True)
class DeadLetterFile:
    """The refused lines of one batch, written by one attempt of a task: all of them, or none.

    All nodes share the `folder`.
    """

    folder: str
    batch: Batch
    attempt: int
    count: int = 0
    _file: BinaryIO | None = field(default=None, repr=False)

    def take(self, rows: pa.RecordBatch) -> None:
        """Write a letter for each refused row."""
        columns = rows.select(_COLUMNS).filter(pc.is_valid(rows.column("refused")))
        for refused, file, position, value in zip(
            *(column.to_pylist() for column in columns), strict=True
        ):
            self._open().write(_letter(refused, file, position, value))
            self.count += 1

    def end(self) -> None:
        """Rename the complete file to its final name."""
        # If a task has two attempts the later one wins; their lines are the same.
        if self._file is not None:
            self._file.close()
            self._unfinished().replace(self._path)
            self._file = None

    def _open(self) -> BinaryIO:
        if self._file is None:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            self._file = self._unfinished().open("wb")
        return self._file

    @property
    def _path(self) -> Path:
        return Path(self.folder) / f"batch-{self.batch.label}.ndjson"

    def _unfinished(self) -> Path:
        suffix = f".{self.batch.run}.{self.attempt}.unfinished"
        return self._path.with_suffix(suffix)


def _letter(refused: str, file: str | None, position: int, value: bytes) -> bytes:
    letter: dict[str, Any] = {
        "reason": refused,
        "file": file_name(file or "") or None,
        "row": position,
        # A line may be refused because it is not UTF-8, but its letter is JSON.
        "line": value.decode("utf-8", "backslashreplace"),
    }
    return msgspec.json.encode(letter) + b"\n"
