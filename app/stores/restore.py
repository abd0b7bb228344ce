"""Restoring a backup as the embedded store."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tidegate.app.stores import generation
from tidegate.app.stores.schema import APPLICATION_ID, FORMAT, Folder
from tidegate.app.stores.store import StoreUnusable

REPLACED = "tidegate.db.before"
"""The name of a replaced store; `.2` and so on follow where the name is taken."""

_RESTORING = "tidegate.db.restoring"


class Restored(NamedTuple):
    """The number of restored topics, and where the replaced store is, if there was one."""

    topics: int
    before: Path | None


def restore(backup: Path, path: Path, *, replaces: bool = False) -> Restored:
    """Make a backup the store of a folder, completely or not at all.

    At the next start every topic gets a new epoch: offsets after the backup are assigned again, and
    must not be mistaken for the old ones.

    Args:
        backup: a database file, made by `.backup` or `VACUUM INTO` of SQLite.
        path: the folder; created if missing.
        replaces: keep an existing store under another name instead of refusing.

    Raises:
        StoreUnusable: one sentence with the reason; the store is unchanged.
    """
    topics, before = _check(backup), None
    folder = Folder.take(path)
    try:
        if folder.database.exists() and not replaces:
            raise StoreUnusable(f"There is a store in {path} already; --replace keeps it beside.")
        copy = path / _RESTORING
        # Left by a restore that was killed.
        copy.unlink(missing_ok=True)
        _copy(backup, copy)
        if folder.database.exists():
            before = _rename(folder.database)
        copy.replace(folder.database)
        _sync(path)  # a rename survives a power loss only once the folder is synced
    except (sqlite3.Error, OSError) as error:
        raise StoreUnusable(f"The store in {path} cannot be restored: {error}.") from None
    finally:
        folder.release()
    return Restored(topics, before)


def _check(backup: Path) -> int:
    """Check a backup without writing to it, and return its number of topics."""
    try:
        with closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as found:
            if found.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise StoreUnusable(f"The file {backup} is no backup of a store.")
            if found.execute("PRAGMA user_version").fetchone()[0] > FORMAT:
                raise StoreUnusable(f"The backup {backup} was written by a newer Tidegate.")
            if found.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise StoreUnusable(f"The backup {backup} is damaged.")
            return int(found.execute("SELECT count(*) FROM topics").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreUnusable(f"The backup {backup} cannot be read: {error}.") from None


def _copy(backup: Path, copy: Path) -> None:
    # Created first with its mode: SQLite would let other users read it.
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with (
        closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # leaves one file without a log
        target.execute("PRAGMA synchronous = FULL")
        generation.mark_restored(target)


def _rename(database: Path) -> Path:
    """Rename a store after merging its log: the new store would read a log left beside it.

    Existing files keep their names, because each may be the only copy of its data.
    """
    with closing(sqlite3.connect(database)) as found:
        found.execute("PRAGMA journal_mode = DELETE")
    for number in itertools.count(1):
        before = database.with_name(REPLACED if number == 1 else f"{REPLACED}.{number}")
        with contextlib.suppress(FileExistsError):
            # A link fails where the name is taken; a rename would overwrite what is there.
            os.link(database, before)
            return before
    raise AssertionError("numbers do not end")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
