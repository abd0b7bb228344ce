"""Small files become large ones, and no reader sees a message twice, or not at all."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import DAY_MS, NOON_MS, archive, files, positions, row
from tests.support.rules import rule
from tidegate.pipeline.archive import folder as compaction
from tidegate.pipeline.archive.folder import TopicFolder, compact, compact_day, is_crowded
from tidegate.pipeline.archive.writing import PartWriter
from tidegate.pipeline.errors import ArchiveUnusable


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
