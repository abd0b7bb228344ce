"""The database file of the SQLite store: what is created, and what is left unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tidegate.app.stores.schema import APPLICATION_ID, FORMAT, TABLES_OF_TOPIC, open_database
from tidegate.app.stores.store import StoreUnusable


def asked(connection: sqlite3.Connection, pragma: str) -> object:
    return connection.execute(f"PRAGMA {pragma}").fetchone()[0]


@pytest.mark.parametrize(("survives_power", "synchronous"), [(False, 1), (True, 2)])
def test_a_new_file_has_tables_and_its_format(
    tmp_path: Path, *, survives_power: bool, synchronous: int
) -> None:
    for _ in range(2):
        path = tmp_path / "x.db"
        with closing(open_database(path, survives_power=survives_power)) as connection:
            assert asked(connection, "journal_mode") == "wal"
            assert asked(connection, "synchronous") == synchronous
            assert asked(connection, "user_version") == FORMAT
            assert asked(connection, "application_id") == APPLICATION_ID
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            assert {name for (name,) in tables} >= {"topics", *TABLES_OF_TOPIC}


def no_database(path: Path) -> None:
    path.write_bytes(b"something else, and long enough to be read as a header" * 20)


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
        connection.commit()


def of_a_newer_format(path: Path) -> None:
    with closing(open_database(path, survives_power=False)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (no_database, "is not a database"),
        (of_another_program, "is a database of another program"),
        (of_a_newer_format, f"written by a newer Tidegate: it has format {FORMAT + 1}"),
        (a_folder, "cannot be opened: unable to open database file"),
    ],
)
def test_what_is_not_ours_is_refused_and_left_as_it_was(
    tmp_path: Path, make: Callable[[Path], None], told: str
) -> None:
    path = tmp_path / "x.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreUnusable, match=told) as refused:
        open_database(path, survives_power=False)
    assert str(refused.value).count("\n") == 0
    assert before == (path.read_bytes() if path.is_file() else None)
    assert [it.name for it in tmp_path.iterdir()] == ["x.db"]
