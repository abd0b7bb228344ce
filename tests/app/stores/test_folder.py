"""The folder of a store: made, taken by one gateway at a time, and refused in one sentence."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tidegate.app.stores.schema import Folder
from tidegate.app.stores.store import StoreUnusable


def test_it_is_made_where_it_is_not_there_and_only_for_its_owner(tmp_path: Path) -> None:
    folder = Folder.take(tmp_path / "a" / "b")
    assert folder.database == tmp_path / "a" / "b" / "tidegate.db"
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    folder.release()


def test_only_one_has_it_at_a_time(tmp_path: Path) -> None:
    folder = Folder.take(tmp_path)
    with pytest.raises(StoreUnusable, match="in use by another gateway"):
        Folder.take(tmp_path)
    folder.release()
    Folder.take(tmp_path).release()


def test_a_folder_that_cannot_be_made_or_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "tidegate.lock").mkdir()
    for path in (tmp_path / "file", tmp_path / "file" / "in", tmp_path):
        with pytest.raises(StoreUnusable, match=r"folder .* cannot be written: .*\.$"):
            Folder.take(path)
