"""A topic's folder: one writer, and changes that are seen at once or not at all."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import archive, positions, row, written
from tidegate.pipeline.archive.folder import TopicFolder, exchange_paths, parts_in
from tidegate.pipeline.archive.writing import Edge
from tidegate.pipeline.errors import ArchiveUnusable


def test_a_finished_file_is_seen_once_it_is_published(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    [file] = written(folder, [row(1)], Edge("e1", None, 0))
    assert folder.parts() == []
    folder.publish(file.name, file.part)
    assert folder.parts() == [file.part]
    assert folder.file(file.part).exists()
    assert parts_in(folder.path / "date=1999-01-01") == []


def test_one_process_writes(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    with (
        folder.locked(),
        pytest.raises(ArchiveUnusable, match="another process writes"),
        TopicFolder(tmp_path, "ticks").locked(),
    ):
        pass
    with folder.locked():
        pass


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    written(folder, [row(1)], Edge("e1", None, 0))
    (folder.unfinished / "date=2024-10-04.successor").mkdir()
    with folder.locked():
        assert list(folder.unfinished.iterdir()) == []


def test_a_folder_that_was_taken_away_is_not_written_any_more(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    with folder.locked():
        folder.require_lock()
        shutil.rmtree(tmp_path / "topic=ticks")
        with pytest.raises(ArchiveUnusable, match="removed, or put elsewhere"):
            folder.require_lock()
        with (
            TopicFolder(tmp_path, "ticks").locked(),
            pytest.raises(ArchiveUnusable, match="removed, or put elsewhere"),
        ):
            folder.require_lock()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "topic=ticks").write_text("a file")
    with (
        pytest.raises(ArchiveUnusable, match="topic=ticks: Not a directory"),
        TopicFolder(tmp_path, "ticks").locked(),
    ):
        pass


def test_two_paths_are_exchanged_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"was-{name}").touch()
    exchange_paths(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["was-other"]
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["was-one"]


def test_where_folders_cannot_be_exchanged_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    before = archive(folder, [row(1)])
    monkeypatch.setattr(sys, "platform", "another")
    with pytest.raises(ArchiveUnusable, match="small files stay as they are"):
        folder.exchange(before[0].parent, folder.parts(), [])
    assert positions(folder) == [1]
