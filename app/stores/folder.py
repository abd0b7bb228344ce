"""The embedded store's folder: made where it is not there, and one gateway's at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from app.stores.store import StoreUnusable

DATABASE = "tidegate.db"
LOCK = "tidegate.lock"
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600  # messages are nobody else's business


class FolderUnusable(StoreUnusable):
    """The folder cannot be made, or not be written."""


class Folder:
    """A folder that is held until it is released, or the process is gone, however it ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Make it where it is not there, and keep others out.

        Raises:
            FolderUnusable: it cannot be written.
            StoreUnusable: another gateway has it.
        """
        try:
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        except OSError as error:
            reason = error.strerror or error
            detail = f"The store's folder {path} cannot be written: {reason}."
            raise FolderUnusable(detail) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StoreUnusable(f"The store in {path} is in use by another gateway.") from None
        return cls(path, descriptor)

    @property
    def database(self) -> Path:
        """The one file that matters."""
        return self.path / DATABASE

    def size_bytes(self) -> int:
        """What its files take up; one may go while it is looked at."""
        size_bytes = 0
        for found in os.scandir(self.path):
            with contextlib.suppress(FileNotFoundError):
                size_bytes += found.stat().st_size
        return size_bytes

    def release(self) -> None:
        """Let others in."""
        os.close(self._descriptor)
