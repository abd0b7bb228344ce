"""Files on a disk: replaced in one step so that they survive a loss of power, locked, searched."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PIECE_BYTES = 64 * 1024


@contextmanager
def open_replacement(path: Path, unfinished: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write; it gets the name `path` if the block ends without an error.

    Args:
        path: the file to create or replace.
        unfinished: its name until then, in the same folder. Writers that may run at the same time
            need one each.
    """
    # Appended, not exchanged for the suffix: a.toml and a.json would share one unfinished file.
    unfinished = unfinished or path.with_name(f"{path.name}.unfinished")
    # After an error it stays: the next attempt empties it, and nothing reads it before.
    with unfinished.open("wb") as file:
        yield file
        # Without fsync a file system may keep the rename and lose the content: an empty file.
        file.flush()
        os.fsync(file.fileno())
    # In this order: the content is on the disk before the name points to it, then the name is too.
    unfinished.replace(path)
    sync(path.parent)


def write(path: Path, content: bytes) -> None:
    """Replace a file atomically: a crash leaves the old content or the new."""
    with open_replacement(path) as file:
        file.write(content)


def sync(path: Path) -> None:
    """Fsync a file, or the names in a folder."""
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


def end_of_lines(file: BinaryIO) -> int:
    """Return the position after the last whole line; what follows it may still be written."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - PIECE_BYTES)
        file.seek(begin)
        at = file.read(end - begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0
