"""The folder of the SQLite store: its files, and the lock that one gateway has at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from tidegate.app.stores.store import StoreUnusable

DATABASE = "tidegate.db"
LOCK = "tidegate.lock"
SIDE_FILES = (f"{DATABASE}-wal", f"{DATABASE}-shm")
"""SQLite keeps both from the first write to the close."""
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600  # other users must not read messages


class FolderUnusable(StoreUnusable):
    """The folder cannot be created or written."""


class StoreFolder:
    """A folder under an exclusive lock, which the kernel releases when the process ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._opened: dict[str, tuple[int, int]] = {}

    @classmethod
    def lock(cls, path: Path) -> Self:
        """Create the folder if missing, and lock it.

        Raises:
            FolderUnusable: the folder cannot be written.
            StoreUnusable: another gateway has locked it.
        """
        try:
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            # Closed on exec: a child process must not keep the lock.
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        except OSError as error:
            reason = error.strerror or error
            detail = f"The store's folder {path} cannot be written: {reason}."
            raise FolderUnusable(detail) from None
        try:
            # Does not block: a second gateway is refused at once.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StoreUnusable(f"The store in {path} is in use by another gateway.") from None
        return cls(path, descriptor)

    @property
    def database(self) -> Path:
        """Return the path of the database file."""
        return self.path / DATABASE

    def record_open_files(self) -> None:
        """Record which files are open: those that have the names now."""
        self._opened = {
            name: found
            for name in (DATABASE, LOCK, *SIDE_FILES)
            if (found := self._identity(name)) is not None
        }

    def missing(self) -> str | None:
        """Return the name of an open file that was removed or replaced since, if any.

        The kernel keeps a removed file until it is closed: writes to it succeed, but the next start
        does not find them. Without the lock file a second gateway could write to the same database.
        """
        for name, opened in self._opened.items():
            if self._identity(name) != opened:
                return name
        return None

    def _identity(self, name: str) -> tuple[int, int] | None:
        """Return the device and the inode of a file; None if there is none."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def size_bytes(self) -> int:
        """Return the total size of the folder's files; SQLite may delete one meanwhile."""
        size_bytes = 0
        for found in os.scandir(self.path):
            with contextlib.suppress(FileNotFoundError):
                size_bytes += found.stat().st_size
        return size_bytes

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)
