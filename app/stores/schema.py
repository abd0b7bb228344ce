"""The SQLite store's files: the database schema and format, and the locked folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Self

from tidegate.app.stores import generation
from tidegate.app.stores.store import StoreUnusable

FORMAT = 1
"""The file's `user_version`; the store refuses a newer one."""

APPLICATION_ID = 0x54494445
"""Distinguishes the file from databases of other programs."""

# A log that grew in a burst is cut to this size at its next restart.
_WAL_BYTES_MAX = 64 << 20
_CACHE_KIB = 16 << 10

# A topic gets a new `id` with each epoch, so rows of an earlier epoch are never taken for its rows.
# A row of `journal` holds the messages of one request. A row of `records` is a key's newest
# message, or with a `reason` its tombstone. A topic's head is the journal's highest `last`, or
# `through` if that is higher.
_TABLES = """
CREATE TABLE topics (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    document BLOB NOT NULL,
    through INTEGER NOT NULL DEFAULT 0,
    horizon INTEGER NOT NULL DEFAULT 0,
    exempt_through INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE journal (
    topic INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    items BLOB NOT NULL,
    PRIMARY KEY (topic, last)
) STRICT;
CREATE TABLE records (
    topic INTEGER NOT NULL,
    record_key TEXT NOT NULL,
    position INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    payload BLOB NOT NULL,
    exempt INTEGER NOT NULL,
    reason TEXT,
    put_position INTEGER NOT NULL,
    put_ms INTEGER NOT NULL,
    PRIMARY KEY (topic, record_key)
) STRICT;
CREATE INDEX tombstones ON records (topic, position) WHERE reason IS NOT NULL;
CREATE TABLE producers (
    topic INTEGER NOT NULL,
    name TEXT NOT NULL,
    run INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (topic, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE retries (
    topic INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (topic, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX retries_by_age ON retries (at_ms);
CREATE TABLE stages (
    topic INTEGER NOT NULL,
    name TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    items BLOB NOT NULL,
    PRIMARY KEY (topic, name)
) STRICT;
CREATE INDEX stages_by_age ON stages (at_ms);
"""

TABLES_OF_TOPIC = ("journal", "records", "producers", "retries", "stages")


def open_database(path: Path, *, survives_power: bool) -> sqlite3.Connection:
    """Open or create the file.

    The caller controls transactions, and may use the connection from any thread, one at a time.

    Raises:
        StoreUnusable: the file cannot be opened or is not ours; it is unchanged.
    """
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _unusable(path, error) from None
    try:
        is_new = _is_new(connection, path)
        # In WAL mode NORMAL survives a killed process, and only FULL a power failure.
        connection.execute(f"PRAGMA synchronous = {'FULL' if survives_power else 'NORMAL'}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        _write_format(connection, _TABLES if is_new else "")
        generation.record_opening(connection, survives_power=survives_power)
    except sqlite3.Error as error:
        connection.close()
        raise _unusable(path, error) from None
    except StoreUnusable:
        connection.close()
        raise
    return connection


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file is empty; refuse a foreign or newer one."""
    found = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not found:
        return True
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreUnusable(f"The file {path} is a database of another program.")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise StoreUnusable(
            f"The store {path} was written by a newer Tidegate: it has format {version}, "
            f"this one reads format {FORMAT}."
        )
    return False


def _write_format(connection: sqlite3.Connection, tables: str) -> None:
    """Write the format number with new tables in one transaction.

    An existing file is written as well, so that a read-only one fails at the start.
    """
    connection.executescript(
        f"BEGIN IMMEDIATE; {tables} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {FORMAT}; COMMIT;"
    )


def _unusable(path: Path, error: sqlite3.Error) -> StoreUnusable:
    if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
        return StoreUnusable(f"The file {path} is not a database.")
    return StoreUnusable(f"The store {path} cannot be opened: {error}.")


DATABASE = "tidegate.db"
LOCK = "tidegate.lock"
SIDE_FILES = (f"{DATABASE}-wal", f"{DATABASE}-shm")
"""SQLite keeps the same ones from the first write to the close."""
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600  # other users must not read messages


class FolderUnusable(StoreUnusable):
    """The folder cannot be created or written."""


class Folder:
    """A folder under an exclusive lock, which the kernel releases when the process ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._opened: dict[str, tuple[int, int]] = {}

    @classmethod
    def take(cls, path: Path) -> Self:
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
            # At once or not at all: a second gateway is refused, and does not wait for its turn.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StoreUnusable(f"The store in {path} is in use by another gateway.") from None
        return cls(path, descriptor)

    @property
    def database(self) -> Path:
        """Return the path of the database file."""
        return self.path / DATABASE

    def note_files(self) -> None:
        """Note which files are open: those that the names lead to now."""
        self._opened = {
            name: found
            for name in (DATABASE, LOCK, *SIDE_FILES)
            if (found := self._identity(name)) is not None
        }

    def missing(self) -> str | None:
        """Return the name of an open file that was removed or replaced since, if any.

        The kernel keeps a removed file until it is closed, so writing to it succeeds, and nobody
        finds it again: the next start would begin with an empty folder. Without the lock's file a
        second gateway could write to the same database.
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
