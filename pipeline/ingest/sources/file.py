"""Files that grow, a message on each line, also while they are rotated.

A file is known by its first line and its inode, so one that was renamed is the same, and one that
was emptied and begun again is another. The number of a line is the byte at which it ends.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from tidegate.pipeline.atomic_files import end_of_lines
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import EndpointUnavailable, SourceLost
from tidegate.pipeline.ingest.connector import (
    BYTES_MAX,
    RECORDS_MAX,
    SourceBatch,
    SourceRecord,
    Through,
)
from tidegate.pipeline.ingest.sources.shared import read_start

LINE_BYTES_MAX = 16 * 1024 * 1024
FIRST_LINE_BYTES_MAX = 4_096
POLL_S = 0.05
IDLE_S = 60.0
"""How long a file stays open after its last line: one that was renamed may still be written to."""

Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GrowingFiles:
    """The table `source` of kind file; `pattern` is absolute and may have `*`."""

    pattern: Path
    start: str
    kind: ClassVar[str] = "file"
    separator: ClassVar[str] = "/"

    @property
    def label(self) -> str:
        """The path or pattern."""
        return f"file {self.pattern}"

    def connector(self, name: str) -> FileConnector:
        """Return a connector that has opened nothing yet."""
        return FileConnector(self)


def read_source(table: TomlTable, folder: Path) -> GrowingFiles:
    """Read the table; a relative path is below `folder`."""
    pattern = table.checked("path", str.strip, "a path or pattern, such as logs/app.ndjson*")
    return GrowingFiles(folder.resolve() / pattern, read_start(table))


@dataclass(slots=True)
class _Followed:
    """An open file: what it is, up to which byte it was read, and when it grew last.

    `seen` is the end of the file when it had no whole line more.
    """

    path: Path
    file: BinaryIO
    partition: str
    first_line: bytes
    through: int
    grew_s: float
    seen: int = 0


@dataclass(frozen=True, slots=True)
class _Idle:
    """A file that was closed, as it was then."""

    partition: str
    through: int
    size: int
    changed_ns: int

    def is_as(self, status: os.stat_result) -> bool:
        """Return whether a file has not changed since."""
        return (status.st_size, status.st_mtime_ns) == (self.size, self.changed_ns)


class FileConnector:
    """Reads the lines that follow those which the gateway has (a `Connector`)."""

    def __init__(self, source: GrowingFiles) -> None:
        self._source = source
        self._through: Through = lambda partition: None
        self._followed: dict[Inode, _Followed] = {}
        self._idle: dict[Inode, _Idle] = {}
        self._begins_at_end = source.start == "now"

    def open(self, through: Through) -> None:
        """Open the files that are there.

        Raises:
            EndpointUnavailable: a file cannot be read.
            SourceLost: one is shorter than what was read of it.
        """
        self._through = through
        self._follow_all()
        self._begins_at_end = False  # files that come later are read from their beginning

    def read(self, seconds: float) -> SourceBatch | None:
        """Return the next lines of one file; older files come first.

        Raises:
            EndpointUnavailable: a file cannot be read.
            SourceLost: a file is shorter than what was read of it, or a line is too long.
        """
        give_up_at = time.monotonic() + seconds
        while True:
            self._follow_all()
            try:
                for followed in self._oldest_first():
                    records = list(self._lines(followed))
                    if records:
                        return SourceBatch(records, followed.partition, _lag(followed, records))
            except OSError as error:
                raise self._unreachable(error) from error
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                return None
            time.sleep(min(POLL_S, left_s))

    def acknowledge(self, batch: SourceBatch) -> None:
        """Do nothing: the gateway's number is the position."""

    def close(self) -> None:
        """Close the files."""
        for followed in self._followed.values():
            followed.file.close()
        self._followed.clear()

    def _follow_all(self) -> None:
        """Open files that are new or have grown; close those that have been idle for long."""
        pattern = self._source.pattern
        try:
            paths = sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))
            found = {self._follow(path) for path in paths}
        except OSError as error:
            raise self._unreachable(error) from error
        # The inode of a file that is gone may be given to another one.
        self._idle = {inode: each for inode, each in self._idle.items() if inode in found}
        for inode, followed in list(self._followed.items()):
            status = os.fstat(followed.file.fileno())
            is_idle = time.monotonic() - followed.grew_s > IDLE_S
            if is_idle and status.st_size == followed.seen:
                followed.file.close()
                del self._followed[inode]
                self._idle[inode] = _Idle(
                    followed.partition, followed.through, status.st_size, status.st_mtime_ns
                )

    def _follow(self, path: Path) -> Inode | None:
        """Open a file that is new or has changed; return its inode, None if it is gone."""
        try:
            status = path.stat()
        except FileNotFoundError:  # it was renamed or removed just now
            return None
        inode = status.st_dev, status.st_ino
        followed = self._followed.get(inode)
        if followed is not None and not _was_begun_again(followed):
            followed.path = path
            return inode
        idle = self._idle.get(inode)
        is_unchanged = idle is not None and idle.is_as(status)
        if is_unchanged or not status.st_size or not path.is_file():
            return inode
        if followed is not None:
            followed.file.close()
            del self._followed[inode]
        file = path.open("rb")
        first_line = _first_line(file)
        if not first_line:
            file.close()
            return inode
        digest = hashlib.blake2b(first_line, digest_size=6).hexdigest()
        partition = f"{digest}-{inode[1]:x}"
        through = self._first(file, path, partition)
        self._idle.pop(inode, None)
        if idle is not None and idle.partition == partition:
            through = max(through, idle.through)
        self._followed[inode] = _Followed(
            path, file, partition, first_line, through, time.monotonic()
        )
        return inode

    def _first(self, file: BinaryIO, path: Path, partition: str) -> int:
        """Return the byte at which to begin."""
        size = os.fstat(file.fileno()).st_size
        number = self._through(partition)
        if number is None:
            return end_of_lines(file) if self._begins_at_end else 0
        if number > size:
            file.close()
            raise _too_short(path, size, number)
        return number

    def _oldest_first(self) -> list[_Followed]:
        return sorted(
            self._followed.values(), key=lambda each: os.fstat(each.file.fileno()).st_mtime
        )

    def _lines(self, followed: _Followed) -> Iterator[SourceRecord]:
        """Yield whole lines up to the bounds of a batch."""
        file = followed.file
        file.seek(followed.through)
        count, begun = 0, followed.through
        while count < RECORDS_MAX and followed.through - begun < BYTES_MAX:
            line = file.readline(LINE_BYTES_MAX + 1)
            if not line.endswith(b"\n"):
                if len(line) > LINE_BYTES_MAX:
                    raise SourceLost(
                        f"{followed.path}: the line at byte {followed.through} has more than "
                        f"{LINE_BYTES_MAX} bytes"
                    )
                followed.seen = followed.through + len(line)
                return  # its end is still to be written
            position = f"{followed.path.name}, byte {followed.through}"
            followed.through += len(line)
            followed.grew_s = time.monotonic()
            text = line.rstrip(b"\r\n")
            if text:
                count += 1
                yield SourceRecord(text, followed.through, position, channel=followed.path.name)

    def _unreachable(self, error: OSError) -> EndpointUnavailable:
        return EndpointUnavailable(f"{error.filename or self._source.pattern}: {error.strerror}")


def _first_line(file: BinaryIO) -> bytes:
    """Return the first line, or its beginning; nothing until it is whole."""
    file.seek(0)
    line = file.readline(FIRST_LINE_BYTES_MAX)
    return line if line.endswith(b"\n") or len(line) == FIRST_LINE_BYTES_MAX else b""


def _was_begun_again(followed: _Followed) -> bool:
    """Return whether a file was emptied since it was opened.

    Raises:
        SourceLost: it was, and its first line is the same: what is new in it cannot be known.
    """
    # Only a file that changed can have been; its first line is read again then.
    size = os.fstat(followed.file.fileno()).st_size
    if size == followed.through:
        return False
    if _first_line(followed.file) != followed.first_line:
        return True
    if size < followed.through:
        raise _too_short(followed.path, size, followed.through)
    return False


def _too_short(path: Path, size: int, through: int) -> SourceLost:
    return SourceLost(f"{path} has {size} bytes, but {through} of them were read before")


def _lag(followed: _Followed, records: list[SourceRecord]) -> int:
    """Return about how many lines follow, from the mean length of these."""
    left = os.fstat(followed.file.fileno()).st_size - followed.through
    length = sum(len(each.payload or b"") + 1 for each in records) / len(records)
    return max(0, round(left / length))
