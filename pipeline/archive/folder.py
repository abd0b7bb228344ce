"""A topic's folder in an archive: its files, and the only two ways to change them.

<archive>/topic=NAME/date=2026-11-21/part-….parquet  as `tidegate.keys.archived` calls them
<archive>/topic=NAME/_unfinished/     files on their way in, folders on their way out
<archive>/topic=NAME/_topic.json      the topic's key and type, for a replay into a new topic
<archive>/topic=NAME/_lock            held while a process writes
<archive>/topic=NAME/_checkpoint/EPOCH/  Spark's, unless the command names another

Files appear in order of position, each by one rename: a reader always sees the topic up to some
position, without a gap. Small files are merged into large ones by an exchange of the day's folder
with another one, in one step of the file system: a reader sees each message exactly once.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.keys.archived import DAY_MS, Part, topic_folder
from tidegate.pipeline.archive.writing import ROW_GROUP_ROWS, FinishedFile, PartWriter
from tidegate.pipeline.atomic_files import lock, sync, write
from tidegate.pipeline.errors import ArchiveUnusable

AT_FDCWD = -100
RENAME_EXCHANGE = 2
NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.ENOTSUP})


class TopicShape(msgspec.Struct, frozen=True):
    """What decides how the messages of a topic are published, as in its definition."""

    key: list[str]
    type: str = "json"


class TopicFolder:
    """The parts of one topic; only the holder of `locked` may change them."""

    def __init__(self, archive: Path, topic: str) -> None:
        self.path = archive / topic_folder(topic)
        self.unfinished = self.path / "_unfinished"
        self._lock: int | None = None

    def parts(self) -> list[Part]:
        """Return the archived parts in order of publication."""
        return sorted(part for day in self.days() for part in parts_in(day))

    @property
    def _lock_path(self) -> Path:
        return self.path / "_lock"

    def days(self) -> list[Path]:
        """Return the folders of days in order."""
        return sorted(self.path.glob("date=*"))

    def day_of(self, part: Part) -> Path:
        """Return the folder of a part's day."""
        date = datetime.fromtimestamp(part.day * DAY_MS // 1000, UTC).date()
        return self.path / f"date={date.isoformat()}"

    def file(self, part: Part) -> Path:
        """Return the path of a part."""
        return self.day_of(part) / part.name

    @property
    def _shape_path(self) -> Path:
        return self.path / "_topic.json"

    def write_shape(self, shape: TopicShape) -> None:
        """Store the key and the type of the topic with its messages."""
        write(self._shape_path, msgspec.json.encode(shape))

    def shape(self) -> TopicShape | None:
        """Return what `write_shape` has kept; None in an archive without it.

        Raises:
            ArchiveUnusable: the file is damaged.
        """
        try:
            return msgspec.json.decode(self._shape_path.read_bytes(), type=TopicShape)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ArchiveUnusable(f"{self._shape_path}: cannot be read: {error}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder during the block, and clear what a killed process has left.

        Raises:
            ArchiveUnusable: another process has locked it, or the folder cannot be written.
        """
        try:
            self.unfinished.mkdir(parents=True, exist_ok=True)
            held = lock(self._lock_path)
        except BlockingIOError:
            raise ArchiveUnusable(f"{self.path}: another process writes this archive") from None
        except OSError as error:
            raise ArchiveUnusable(f"{self.path}: {error.strerror or error}") from None
        try:
            self.clear()
            self._lock = held
            yield
        finally:
            self._lock = None
            os.close(held)  # the kernel drops the lock with it, also when the process is killed

    def require_lock(self) -> None:
        """Check that the lock is still that of this folder, and not of one that it has replaced.

        Raises:
            ArchiveUnusable: the locked folder was removed or moved; another process may have locked
                the present one.
        """
        try:
            here = self._lock_path.stat().st_ino
        except OSError:
            here = None
        if self._lock is None or os.fstat(self._lock).st_ino != here:
            raise ArchiveUnusable(
                f"{self.path}: was removed, or put elsewhere, while it was written"
            )

    def clear(self) -> None:
        """Remove unfinished files, and folders that were exchanged for others."""
        for left in self.unfinished.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def publish(self, name: str, part: Part) -> None:
        """Make a finished file visible. Files come in order of position."""
        target = self.file(part)
        if not target.parent.exists():
            target.parent.mkdir()
            sync(self.path)
        (self.unfinished / name).rename(target)
        sync(target.parent)

    def exchange(self, day: Path, kept: Sequence[Part], files: Sequence[tuple[str, Part]]) -> None:
        """Replace a day's folder by some of its parts and some finished files, in one step.

        Raises:
            ArchiveUnusable: the file system cannot do it; nothing was changed.
        """
        successor = self.unfinished / f"{day.name}.successor"
        successor.mkdir()
        # Links instead of copies: the same bytes belong to both folders until the exchange.
        for part in kept:
            os.link(day / part.name, successor / part.name)
        for name, part in files:
            (self.unfinished / name).rename(successor / part.name)
        sync(successor)
        exchange_paths(day, successor)
        sync(self.path)
        shutil.rmtree(successor)


def parts_in(day: Path) -> list[Part]:
    """Return the parts of a day in order."""
    try:
        found = [Part.of(path.name) for path in day.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(part for part in found if part is not None)


def exchange_paths(one: Path, other: Path) -> None:
    """Exchange two paths in one step.

    Raises:
        ArchiveUnusable: this system, or its file system, cannot.
    """
    cannot = f"{one}: small files stay as they are: this file system cannot exchange two folders"
    if not sys.platform.startswith("linux"):
        raise ArchiveUnusable(cannot)
    # Python has no call for RENAME_EXCHANGE. Two plain renames would leave a moment without the
    # day.
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if library.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number in NO_EXCHANGE:
        raise ArchiveUnusable(cannot)
    raise OSError(number, os.strerror(number), str(one))


# --- compaction: adjacent files of one day become one file, in order

TARGET_BYTES = 128 * 1024 * 1024  # as Spark cuts files for its tasks (maxPartitionBytes)
FILES_MAX = 32
"""While a topic is being archived, a day may have so many small files before they are merged."""

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV})


def compact(folder: TopicFolder, target_bytes: int = TARGET_BYTES) -> int:
    """Merge the small files of every day; return by how many the files have become fewer.

    The caller holds the folder's lock.

    Raises:
        ArchiveUnusable: the file system cannot do it, or a file is damaged.
    """
    return sum(compact_day(folder, day, target_bytes) for day in folder.days())


def compact_day(folder: TopicFolder, day: Path, target_bytes: int = TARGET_BYTES) -> int:
    """Merge the small files of one day, as `compact` does; leave no file if it fails."""
    parts = parts_in(day)
    groups = [group for group in neighbours(day, parts, target_bytes) if len(group) > 1]
    if not groups:
        return 0
    merged = {part for group in groups for part in group}
    try:
        files = [_merge(folder, day, group, at) for at, group in enumerate(groups)]
        _exchange(folder, day, [part for part in parts if part not in merged], files)
    finally:
        folder.clear()
    return len(merged) - len(files)


def is_crowded(day: Path, target_bytes: int = TARGET_BYTES) -> bool:
    """Return whether a day has so many small files that merging them pays."""
    groups = neighbours(day, parts_in(day), target_bytes)
    return max(map(len, groups), default=0) > FILES_MAX


def neighbours(day: Path, parts: Sequence[Part], target_bytes: int) -> list[list[Part]]:
    """Group parts that follow one another and fit into one file; large parts stay alone."""
    groups: list[list[Part]] = []
    room = 0
    for part in parts:
        size = (day / part.name).stat().st_size
        last = groups[-1][-1] if groups else None
        follows = last is not None and (last.epoch, last.last + 1) == (part.epoch, part.first)
        if not follows or size > room:
            groups.append([])
            # A large file closes the group before it: merging must not break the order of
            # positions.
            room = target_bytes
        groups[-1].append(part)
        room -= size
    return groups


def _exchange(
    folder: TopicFolder, day: Path, kept: Sequence[Part], files: Sequence[FinishedFile]
) -> None:
    try:
        folder.exchange(day, kept, [(file.name, file.part) for file in files])
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        raise ArchiveUnusable(
            f"{day}: small files stay as they are: this file system has no links"
        ) from None


def _merge(folder: TopicFolder, day: Path, group: Sequence[Part], at: int) -> FinishedFile:
    first = group[0]
    path = folder.unfinished / f"{day.name}.{at}.merged"
    writer = PartWriter(path, first.epoch, first.first, first.stamp_ms)
    for rows in _rows(day, group):
        writer.write(rows)
    written = writer.close()
    if written.part.last != group[-1].last:
        raise ArchiveUnusable(f"{day}: {first.name} and its neighbors hold other rows than said")
    return written


def _rows(day: Path, group: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    for part in group:
        try:
            with pq.ParquetFile(day / part.name) as file:
                yield from file.iter_batches(batch_size=ROW_GROUP_ROWS)
        except pa.ArrowException as error:
            raise ArchiveUnusable(f"{day / part.name}: cannot be read: {error}") from None
