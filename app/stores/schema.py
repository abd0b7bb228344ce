"""The database file of the embedded store: its tables, its format's number, how it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from app.stores import lives
from app.stores.store import StoreUnusable

FORMAT = 1
"""`user_version` of the file; a newer one is left alone."""

APPLICATION_ID = 0x54494445
"""Tells the file from other programs' databases."""

_WAL_BYTES_MAX = 64 << 20
_CACHE_KIB = 16 << 10

# A topic's `id` is new with each epoch. Of `journal` a row is a request, of `records` a key: its
# newest message, or with a `reason` its tombstone. `head` is the journal's last, or `through`.
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
    """Open the file, or make it. Transactions are the caller's; any thread may use it, one at once.

    Raises:
        StoreUnusable: it cannot be opened or is not ours to read; it was left as it was.
    """
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _unusable(path, error) from None
    try:
        is_new = _is_new(connection, path)
        connection.execute(f"PRAGMA synchronous = {'FULL' if survives_power else 'NORMAL'}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        _write_format(connection, _TABLES if is_new else "")
        lives.begin(connection, survives_power=survives_power)
    except sqlite3.Error as error:
        connection.close()
        raise _unusable(path, error) from None
    except StoreUnusable:
        connection.close()
        raise
    return connection


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether there is nothing in it yet."""
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
    """In one step with new tables; a start that cannot write is told at once."""
    connection.executescript(
        f"BEGIN IMMEDIATE; {tables} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {FORMAT}; COMMIT;"
    )


def _unusable(path: Path, error: sqlite3.Error) -> StoreUnusable:
    if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
        return StoreUnusable(f"The file {path} is not a database.")
    return StoreUnusable(f"The store {path} cannot be opened: {error}.")
