"""A backup of the embedded store is put in its place, and it is noted that time has gone back."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from app.stores import lives
from app.stores.folder import Folder
from app.stores.schema import APPLICATION_ID, FORMAT
from app.stores.store import StoreUnusable

BEFORE = "tidegate.db.before"
"""What a store that is replaced is called then; with .2 and on behind it where that is taken."""

_RESTORING = "tidegate.db.restoring"


class Restored(NamedTuple):
    """How many topics there are now, and what the store is called that was there, if any."""

    topics: int
    before: Path | None


def restore(backup: Path, path: Path, *, replaces: bool = False) -> Restored:
    """Make a backup the store in a folder, whole or not at all.

    At the next start every topic begins another epoch: positions that were given after the backup
    are given again, and nobody may take them for the old ones.

    Args:
        backup: a database file, as `.backup` or `VACUUM INTO` of SQLite make it.
        path: the folder; made where it is not there.
        replaces: a store that is there is kept beside it, and those that were kept before.

    Raises:
        StoreUnusable: one sentence that says why not; the store is as it was.
    """
    topics, before = _checked(backup), None
    folder = Folder.take(path)
    try:
        if folder.database.exists() and not replaces:
            raise StoreUnusable(f"There is a store in {path} already; --replace keeps it beside.")
        copy = path / _RESTORING
        copy.unlink(missing_ok=True)
        _copy(backup, copy)
        if folder.database.exists():
            before = _keep(folder.database)
        copy.replace(folder.database)
        _sync(path)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnusable(f"The store in {path} cannot be restored: {error}.") from None
    finally:
        folder.release()
    return Restored(topics, before)


def _checked(backup: Path) -> int:
    """How many topics it has; nothing is written to it."""
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
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with (
        closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        target.execute("PRAGMA synchronous = FULL")
        lives.doubt(target)


def _keep(database: Path) -> Path:
    """Another name for a store, in one file: a log left beside it would be taken for the new's.

    Nothing that has such a name is touched: it may be the only one of its kind.
    """
    with closing(sqlite3.connect(database)) as found:
        found.execute("PRAGMA journal_mode = DELETE")
    for number in itertools.count(1):
        before = database.with_name(BEFORE if number == 1 else f"{BEFORE}.{number}")
        with contextlib.suppress(FileExistsError):
            os.link(database, before)
            return before
    raise AssertionError("numbers do not end")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
