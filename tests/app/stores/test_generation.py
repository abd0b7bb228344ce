"""A store that may have gone back in time starts a new epoch in every topic; no other does.

The tests stand in for the machine's boot id.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tidegate.app.stores import generation as lives
from tidegate.app.stores.schema import open_database


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a machine says which start of itself this is."""
    path = tmp_path / "boot_id"
    path.write_text("first\n")
    monkeypatch.setattr(lives, "BOOT_ID", path)
    return path


def opened(tmp_path: Path, *, survives_power: bool = False) -> sqlite3.Connection:
    return open_database(tmp_path / "db", survives_power=survives_power)


def epochs(connection: sqlite3.Connection) -> list[str]:
    """Read the topics' epochs and close the connection, as a process does that dies."""
    with closing(connection):
        return [epoch for (epoch,) in connection.execute("SELECT epoch FROM topics ORDER BY id")]


def filled(tmp_path: Path, *, survives_power: bool = False) -> sqlite3.Connection:
    connection = opened(tmp_path, survives_power=survives_power)
    for name in "ab":
        connection.execute(
            "INSERT INTO topics (name, epoch, document) VALUES (?, ?, x'7b7d')", (name, f"e{name}")
        )
    return connection


def test_a_process_that_dies_leaves_no_doubt(tmp_path: Path) -> None:
    filled(tmp_path).close()  # without a good end
    assert epochs(opened(tmp_path)) == ["ea", "eb"]


def test_a_machine_that_goes_down_leaves_doubt_once(tmp_path: Path, machine: Path) -> None:
    filled(tmp_path).close()
    machine.write_text("second\n")
    renewed = epochs(opened(tmp_path))
    assert not {"ea", "eb"} & set(renewed)
    assert len(set(renewed)) == 2
    assert epochs(opened(tmp_path)) == renewed


def test_what_a_topic_was_filled_from_is_known_by_its_new_epoch(
    tmp_path: Path, machine: Path
) -> None:
    with closing(filled(tmp_path)) as connection:
        for topic, mark in ((1, "eb-17 write"), (2, "ebb-17 write")):
            connection.execute("INSERT INTO marks (topic, mark) VALUES (?, ?)", (topic, mark))
    machine.write_text("second\n")
    connection = opened(tmp_path)
    marks = [mark for (mark,) in connection.execute("SELECT mark FROM marks ORDER BY topic")]
    assert marks == [f"{epochs(connection)[1]}-17 write", "ebb-17 write"]


def test_a_good_end_leaves_no_doubt(tmp_path: Path, machine: Path) -> None:
    connection = filled(tmp_path)
    lives.record_close(connection)
    connection.close()
    machine.write_text("second\n")
    assert epochs(opened(tmp_path)) == ["ea", "eb"]


def test_a_store_that_survives_its_machine_is_never_in_doubt(tmp_path: Path, machine: Path) -> None:
    filled(tmp_path, survives_power=True).close()
    machine.write_text("second\n")
    assert epochs(opened(tmp_path, survives_power=True)) == ["ea", "eb"]


def test_what_it_survives_is_asked_of_the_life_before(tmp_path: Path, machine: Path) -> None:
    filled(tmp_path).close()
    machine.write_text("second\n")
    assert "e" not in epochs(opened(tmp_path, survives_power=True))


def test_a_machine_that_says_nothing_is_doubted_after_every_bad_end(
    tmp_path: Path, machine: Path
) -> None:
    machine.unlink()
    connection = filled(tmp_path)
    lives.record_close(connection)
    connection.close()
    assert epochs(opened(tmp_path)) == ["ea", "eb"]
    assert "e" not in epochs(opened(tmp_path))


def test_the_note_is_on_the_disk_before_anything_follows(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 1  # NORMAL again
        assert connection.execute("SELECT boot FROM life").fetchall() == [("first",)]
