"""The SQLite store's database: its tables, its format, and how it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

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

# Created where it is missing: files that were written before derived topics had marks lack it.
_MARKS = """
CREATE TABLE IF NOT EXISTS marks (
    topic INTEGER PRIMARY KEY,
    mark TEXT NOT NULL
) STRICT;
"""

TABLES_OF_TOPIC = ("journal", "records", "producers", "retries", "stages", "marks")


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
        _write_format(connection, f"{_TABLES if is_new else ''} {_MARKS}")
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
