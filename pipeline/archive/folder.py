"""A topic's folder in an archive: what is in it, and the only two ways in which that changes.

<archive>/topic=NAME/date=2026-11-21/part-….parquet  as `keys.archived` calls them
<archive>/topic=NAME/_unfinished/     files on their way in, folders on their way out
<archive>/topic=NAME/_lock            held while a process writes
<archive>/topic=NAME/_checkpoint/EPOCH/  Spark's, unless it stands elsewhere

Files come one after the other, in order of position, each by one rename: whoever looks sees a
beginning of the topic without a hole. Small files become large ones by an exchange of the day's
whole folder with another one, in one step of the file system: never twice, never not at all.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from keys.archived import DAY_MS, Part, topic_folder
from pipeline.errors import ArchiveUnusable
from pipeline.lasting import sync

AT_FDCWD = -100
RENAME_EXCHANGE = 2
NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.ENOTSUP})


class TopicFolder:
    """The parts of one topic; changed only by who holds `locked`."""

    def __init__(self, archive: Path, topic: str) -> None:
        self.path = archive / topic_folder(topic)
        self.unfinished = self.path / "_unfinished"
        self._lock: int | None = None

    def parts(self) -> list[Part]:
        """What is archived, in order of publication."""
        return sorted(part for day in self.days() for part in parts_in(day))

    @property
    def _lock_path(self) -> Path:
        return self.path / "_lock"

    def days(self) -> list[Path]:
        """The folders of days, in order."""
        return sorted(self.path.glob("date=*"))

    def day_of(self, part: Part) -> Path:
        """The folder in which a part stands."""
        date = datetime.fromtimestamp(part.day * DAY_MS // 1000, UTC).date()
        return self.path / f"date={date.isoformat()}"

    def file(self, part: Part) -> Path:
        """Where a part stands."""
        return self.day_of(part) / part.name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes it; what a killed process left behind is cleared away.

        Raises:
            ArchiveUnusable: another process is at it, or the folder cannot be written.
        """
        try:
            self.unfinished.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ArchiveUnusable(f"{self.path}: {error.strerror or error}") from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveUnusable(f"{self.path}: another process writes this archive") from None
            self.clear()
            self._lock = lock
            yield
        finally:
            self._lock = None
            os.close(lock)  # the kernel drops the lock with it, also when the process is killed

    def require_lock(self) -> None:
        """See that what is locked is still this folder, and not one that stood here before.

        Raises:
            ArchiveUnusable: it was removed or put elsewhere; another process may hold what is here.
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
        """Remove what never came in, and what was exchanged."""
        for left in self.unfinished.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def publish(self, name: str, part: Part) -> None:
        """Let a finished file be seen. Files come in order of position."""
        target = self.file(part)
        if not target.parent.exists():
            target.parent.mkdir()
            sync(self.path)
        (self.unfinished / name).rename(target)
        sync(target.parent)

    def exchange(self, day: Path, kept: Sequence[Part], files: Sequence[tuple[str, Part]]) -> None:
        """Let a day consist of parts that it has and finished files, in one step.

        Raises:
            ArchiveUnusable: the file system cannot do it; nothing was changed.
        """
        successor = self.unfinished / f"{day.name}.successor"
        successor.mkdir()
        for part in kept:
            os.link(day / part.name, successor / part.name)
        for name, part in files:
            (self.unfinished / name).rename(successor / part.name)
        sync(successor)
        exchange_paths(day, successor)
        sync(self.path)
        shutil.rmtree(successor)


def parts_in(day: Path) -> list[Part]:
    """The parts of a day, in order."""
    try:
        found = [Part.of(path.name) for path in day.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(part for part in found if part is not None)


def exchange_paths(one: Path, other: Path) -> None:
    """Give each of two paths what the other had, in one step.

    Raises:
        ArchiveUnusable: this system, or its file system, cannot.
    """
    cannot = f"{one}: small files stay as they are: this file system cannot exchange two folders"
    if not sys.platform.startswith("linux"):
        raise ArchiveUnusable(cannot)
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if library.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number in NO_EXCHANGE:
        raise ArchiveUnusable(cannot)
    raise OSError(number, os.strerror(number), str(one))
