"""A topic's folder: one writer, and changes that are seen at once or not at all."""

from __future__ import annotations

import errno
import shutil
import sys
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import DAY_MS, NOON_MS, archive, files, positions, row, written
from tests.support.rules import rule
from tidegate.pipeline.archive import folder as compaction
from tidegate.pipeline.archive.folder import (
    TopicFolder,
    compact,
    compact_day,
    exchange_paths,
    is_crowded,
    parts_in,
)
from tidegate.pipeline.archive.writing import Edge, PartWriter
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


def test_a_removed_folder_is_no_longer_written(tmp_path: Path) -> None:
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


def small_files(tmp_path: Path, count: int) -> TopicFolder:
    folder = TopicFolder(tmp_path, "ticks")
    archive(folder, *([row(at)] for at in range(1, count + 1)))
    return folder


@rule("archive-1")
def test_the_files_of_a_day_become_one(tmp_path: Path) -> None:
    folder = small_files(tmp_path, 5)
    archive(folder, [row(6, NOON_MS + DAY_MS)], [row(7, NOON_MS + DAY_MS)])
    assert compact(folder) == 5
    assert [(part.first, part.last) for part in folder.parts()] == [(1, 5), (6, 7)]
    assert positions(folder) == [1, 2, 3, 4, 5, 6, 7]
    assert compact(folder) == 0
    assert list(folder.unfinished.iterdir()) == []


def test_large_files_stay_and_so_do_epochs_and_holes(tmp_path: Path) -> None:
    folder = small_files(tmp_path, 3)
    archive(folder, [row(1)], [row(2)], epoch="e0")
    size = max(path.stat().st_size for path in files(folder))
    assert compact(folder, target_bytes=size) == 0
    middle = folder.parts()[1]
    folder.file(middle).unlink()
    assert compact(folder) == 1
    spans = [(part.epoch, part.first, part.last) for part in folder.parts()]
    assert spans == [("e1", 1, 1), ("e1", 3, 3), ("e0", 1, 2)]


def test_a_day_is_put_together_once_it_is_crowded(tmp_path: Path) -> None:
    folder = small_files(tmp_path, compaction.FILES_MAX)
    [day] = folder.days()
    assert not is_crowded(day)
    archive(folder, [row(compaction.FILES_MAX + 1)])
    assert is_crowded(day)
    assert compact_day(folder, day) == compaction.FILES_MAX
    assert not is_crowded(day)


@rule("archive-1")
@pytest.mark.parametrize("place", ["_merge", "exchange_paths", "rmtree"])
def test_a_kill_at_any_point_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The exchange is one step, and what lies about is cleared away."""
    folder = small_files(tmp_path, 4)
    from tidegate.pipeline.archive import folder as folder_module

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    owner = {
        "_merge": compaction,
        "exchange_paths": folder_module,
        "rmtree": shutil,
    }[place]
    with monkeypatch.context() as patched:
        patched.setattr(owner, place, killed)
        with pytest.raises(Killed):
            compact(folder)
    assert positions(folder) == [1, 2, 3, 4]
    with folder.locked():
        assert list(folder.unfinished.iterdir()) == []
        compact(folder)
    assert positions(folder) == [1, 2, 3, 4]
    assert len(files(folder)) == 1


def test_a_damaged_file_is_one_sentence_and_stays(tmp_path: Path) -> None:
    folder = small_files(tmp_path, 2)
    files(folder)[1].write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(ArchiveUnusable, match=r"0002\.parquet: cannot be read"):
        compact(folder)
    assert len(files(folder)) == 2


def test_where_there_is_no_room_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_files(tmp_path, 2)
    monkeypatch.setattr(PartWriter, "close", no_room)
    with pytest.raises(OSError, match="no room"):
        compact(folder)
    assert list(folder.unfinished.iterdir()) == []
    assert positions(folder) == [1, 2]


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no room")
