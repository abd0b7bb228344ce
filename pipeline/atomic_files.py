"""Files that are there as a whole or not at all, and survive a loss of power; and file locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written(path: Path, unfinished: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name once the block has ended well.

    `unfinished` is its name until then, in the same folder, where several may write it at once.
    """
    beside = unfinished or path.with_suffix(".unfinished")
    with beside.open("wb") as file:
        yield file
        # Without fsync a file system may keep the rename and lose the content: an empty file.
        file.flush()
        os.fsync(file.fileno())
    # The content is on the disk before the name points to it; then the folder's entry follows.
    beside.replace(path)
    sync(path.parent)


def write(path: Path, content: bytes) -> None:
    """Have a file hold this: there is the old one or the new one."""
    with written(path) as file:
        file.write(content)


def sync(path: Path) -> None:
    """Have the disk keep a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(path: Path) -> int:
    """Create and lock a file; return its descriptor, whose close releases the lock.

    The kernel releases it also when the process is killed.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file cannot be created.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
