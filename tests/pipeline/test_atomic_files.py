"""A file has its name once all of it is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from tidegate.pipeline.atomic_files import open_replacement, sync, write


def test_a_file_is_replaced_as_a_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write(path, b"1")
    with pytest.raises(TypeError), open_replacement(path) as file:
        file.write(cast(Any, "no bytes"))
    assert path.read_bytes() == b"1"
    write(path, b"3")
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    assert path.read_bytes() == b"3"


def test_several_may_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "table"
    with (
        open_replacement(path, tmp_path / ".1") as one,
        open_replacement(path, tmp_path / ".2") as other,
    ):
        one.write(b"same")
        other.write(b"same")
    assert [each.name for each in tmp_path.iterdir()] == ["table"]


def test_files_that_differ_only_in_their_suffix_are_written_at_once(tmp_path: Path) -> None:
    with (
        open_replacement(tmp_path / "a.toml") as one,
        open_replacement(tmp_path / "a.json") as other,
    ):
        one.write(b"1")
        other.write(b"2")
    assert (tmp_path / "a.toml").read_bytes() == b"1"
    assert (tmp_path / "a.json").read_bytes() == b"2"


def test_what_was_written_is_synced_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    opened = Path("/proc/self/fd")
    monkeypatch.setattr(os, "fsync", lambda at: synced.append((opened / str(at)).readlink().name))
    write(tmp_path / "run", b"1")
    sync(tmp_path / "run")
    assert synced == ["run.unfinished", tmp_path.name, "run"]
