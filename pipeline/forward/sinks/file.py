"""Appends each row as a line to a file, and rotates the file by size or age."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from tidegate.pipeline import atomic_files
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import InUse
from tidegate.pipeline.forward.sinks.shared import dated, unwritable
from tidegate.pipeline.forward.target import Patience, Refusal, Row


@dataclass(frozen=True, slots=True)
class FileSink:
    """The table `sink` of kind file; without `bytes_max` and `seconds_max` it is not rotated."""

    path: Path
    bytes_max: int | None
    seconds_max: int | None
    kind: ClassVar[str] = "file"
    keeps_position: ClassVar[bool] = False
    knows_message_ids: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The sink's name in logs and for its position: `file PATH`."""
        return f"file {self.path}"

    def target(self, name: str, patience: Patience) -> FileTarget:
        """Return a target whose file is not open yet."""
        return FileTarget(self)


def read_sink(table: TomlTable, folder: Path) -> FileSink:
    """Read the table; a relative path is below `folder`."""
    return FileSink(
        path=(folder / table.checked("path", str.strip, "the path of a file")).resolve(),
        bytes_max=table.count("bytes_max"),
        seconds_max=table.count("seconds_max"),
    )


class FileTarget:
    """Appends lines (a `Target`); `write` returns once they are on disk."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink
        self._file: BinaryIO | None = None
        self._size = 0
        self._first_row_s = 0.0

    def open(self) -> None:
        """Open the file, and remove an incomplete last line, as a kill may leave one.

        Raises:
            InUse: another `tidegate forward` writes to the file.
            EndpointUnavailable: the file cannot be written.
        """
        path = self._sink.path
        try:
            self._file = path.open("ab+")
            # Two writers would tear lines, and each would rename the file of the other.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = self._file.truncate(atomic_files.end_of_lines(self._file))
            atomic_files.sync(path.parent)
        except BlockingIOError:
            raise InUse(
                f"another tidegate forward writes to {path}: give each a path of its own"
            ) from None
        except OSError as error:
            raise unwritable(path, error) from error
        self._first_row_s = time.monotonic()

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Append a line for each row; rotate a file that is too old, or would become too large.

        Raises:
            InUse: another `tidegate forward` has taken the file.
            EndpointUnavailable: the file cannot be written.
        """
        try:
            for row in rows:
                self._append(row.text + b"\n")
            self._sync()
        except OSError as error:
            raise unwritable(self._sink.path, error) from error
        return []

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            # Closing tries again what a full disk refused; `write` has raised that error already.
            with suppress(OSError):
                self._file.close()

    @property
    def _opened(self) -> BinaryIO:
        assert self._file is not None, "it was opened"
        return self._file

    def _append(self, line: bytes) -> None:
        if self._must_rotate(len(line)):
            self._rotate()
        if not self._size:
            self._first_row_s = time.monotonic()
        self._opened.write(line)
        self._size += len(line)

    def _sync(self) -> None:
        self._opened.flush()
        os.fsync(self._opened.fileno())

    def _must_rotate(self, more: int) -> bool:
        """Return whether the file is too old, or too large for so many bytes more."""
        bytes_max, seconds_max = self._sink.bytes_max, self._sink.seconds_max
        is_large = bytes_max is not None and self._size + more > bytes_max
        is_old = seconds_max is not None and time.monotonic() - self._first_row_s >= seconds_max
        return self._size > 0 and (is_large or is_old)

    def _rotate(self) -> None:
        path = self._sink.path
        self._sync()
        self._opened.close()
        path.rename(dated(path))
        self.open()
