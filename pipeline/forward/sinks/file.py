"""A file with a line for each row, which is renamed when it is large or old enough."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from tidegate.pipeline import atomic_files
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.forward.sinks.shared import dated, unwritable
from tidegate.pipeline.forward.target import Patience, Refusal, Row

PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileSink:
    """The table `sink` of kind file; without `bytes_max` and `seconds_max` there is one file."""

    path: Path
    bytes_max: int | None
    seconds_max: int | None
    kind: ClassVar[str] = "file"
    keeps_position: ClassVar[bool] = False

    @property
    def place(self) -> str:
        """The path."""
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
    """Appends lines (a `Target`); they are on the disk when `write` returns."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink
        self._file: BinaryIO | None = None
        self._begun_s = 0.0

    def open(self) -> None:
        """Open the file, and cut off a line that a kill has left without its end.

        Raises:
            SourceUnreachable: the file cannot be written.
        """
        try:
            self._file = self._sink.path.open("ab+")
            self._file.truncate(_end_of_lines(self._file))
            atomic_files.sync(self._sink.path.parent)
        except OSError as error:
            raise unwritable(self._sink.path, error) from error
        self._begun_s = time.monotonic()

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Append a line for each row; before that rename a file that is full or old.

        Raises:
            SourceUnreachable: the file cannot be written.
        """
        lines = b"".join(row.text + b"\n" for row in rows)
        try:
            if self._is_full(len(lines)):
                self._rotate()
            file = self._opened
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self._sink.path, error) from error
        return []

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    @property
    def _opened(self) -> BinaryIO:
        assert self._file is not None, "it was opened"
        return self._file

    def _is_full(self, more: int) -> bool:
        size = self._opened.seek(0, os.SEEK_END)
        if not size:
            self._begun_s = time.monotonic()
            return False
        bytes_max, seconds_max = self._sink.bytes_max, self._sink.seconds_max
        is_large = bytes_max is not None and size + more > bytes_max
        return is_large or (
            seconds_max is not None and time.monotonic() - self._begun_s >= seconds_max
        )

    def _rotate(self) -> None:
        path = self._sink.path
        self._opened.close()
        path.rename(dated(path))
        self.open()


def _end_of_lines(file: BinaryIO) -> int:
    """Return the byte after the last line that has its end."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - PIECE_BYTES)
        file.seek(begin)
        at = file.read(end - begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0
