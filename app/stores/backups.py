"""Backups of the SQLite store: copied while a gateway runs, and restored into a folder."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tidegate.app.stores import generation
from tidegate.app.stores.folder import DATABASE, StoreFolder
from tidegate.app.stores.schema import APPLICATION_ID, FORMAT
from tidegate.app.stores.store import StoreUnusable

REPLACED = "tidegate.db.before"
"""The name of a replaced store; `.2` and so on follow where the name is taken."""

_RESTORING = "tidegate.db.restoring"


def back_up(path: Path, backup: Path) -> int:
    """Copy the store of a folder to a file that is not there yet; return its number of topics.

    A gateway may use the store meanwhile: the copy has everything that was acknowledged before it
    began, and whole requests only. It is marked as `restore` marks it, so that a store that is
    made of it by hand begins other epochs too.

    Args:
        path: the folder of the store.
        backup: the file; it appears under its name when it is complete and checked.

    Raises:
        StoreUnusable: one sentence with the reason; there is no new file.
    """
    if not (path / DATABASE).is_file():
        raise StoreUnusable(f"There is no store in {path}.")
    if backup.exists():
        raise StoreUnusable(f"The file {backup} is there already; a backup replaces nothing.")
    try:
        # In the same folder, as a link cannot lead to another file system.
        with tempfile.TemporaryDirectory(dir=backup.parent, prefix=f".{backup.name}-") as folder:
            copy = Path(folder) / DATABASE
            _copy(path / DATABASE, copy)
            topics = _check(copy, f"The store in {path}")
            os.link(copy, backup)  # fails where the name was taken meanwhile
        _sync(backup.parent)
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StoreUnusable(f"The store cannot be copied to {backup}: {reason}.") from None
    return topics


class Restored(NamedTuple):
    """The number of restored topics, and where the replaced store is, if there was one."""

    topics: int
    before: Path | None


def restore(backup: Path, path: Path, *, replaces: bool = False) -> Restored:
    """Make a backup the store of a folder, completely or not at all.

    At the next start every topic gets a new epoch: offsets after the backup are assigned again, and
    must not be mistaken for the old ones.

    Args:
        backup: a database file, made by `back_up`, or by `.backup` or `VACUUM INTO` of SQLite.
        path: the folder; created if missing.
        replaces: keep an existing store under another name instead of refusing.

    Raises:
        StoreUnusable: one sentence with the reason; the store is unchanged.
    """
    topics, before = _check(backup, f"The backup {backup}"), None
    folder = StoreFolder.lock(path)
    try:
        if folder.database.exists() and not replaces:
            raise StoreUnusable(
                f"There is a store in {path} already; --replace keeps it under another name."
            )
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


def _check(backup: Path, name: str) -> int:
    """Check a backup, called `name` in sentences, without writing; return its number of topics."""
    try:
        with closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as found:
            if found.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise StoreUnusable(f"{name} is a database of another program.")
            if found.execute("PRAGMA user_version").fetchone()[0] > FORMAT:
                raise StoreUnusable(f"{name} was written by a newer Tidegate.")
            if found.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise StoreUnusable(f"{name} is damaged.")
            return int(found.execute("SELECT count(*) FROM topics").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreUnusable(f"{name} cannot be read: {error}.") from None


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
    """Rename a store after merging its log: the new store would read a log that was left there.

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
