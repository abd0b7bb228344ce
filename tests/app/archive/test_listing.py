"""What a listing of an archive contains, and when it is read again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import DAY_MS, NOON_MS, archive, row
from tests.support.rules import rule
from tidegate.app.archive.archive import Listing, archived_of
from tidegate.conflation.topics.topic import Archived
from tidegate.pipeline.archive.folder import TopicFolder, compact


def spans(listing: Listing) -> list[tuple[int, int]]:
    return [(part.first, part.last) for part in listing.parts()]


@rule("archive-1")
def test_a_listing_knows_what_is_there_now(tmp_path: Path) -> None:
    """Also once small files have become one."""
    listing, folder = Listing(tmp_path, "px"), TopicFolder(tmp_path, "px")
    assert spans(listing) == []
    archive(folder, [row(1)], [row(2)], [row(3, NOON_MS + DAY_MS)])
    assert spans(listing) == [(1, 1), (2, 2), (3, 3)]
    archive(folder, [row(4, NOON_MS + DAY_MS)])
    assert spans(listing) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    compact(folder)
    assert spans(listing) == [(1, 2), (3, 4)]
    assert all(path.exists() for path in listing.parts().values())


def test_a_folder_that_has_not_changed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing, folder = Listing(tmp_path, "px"), TopicFolder(tmp_path, "px")
    archive(folder, [row(1)])
    an_hour_ago_s = time.time() - 3_600
    os.utime(folder.file(folder.parts()[0]).parent, (an_hour_ago_s, an_hour_ago_s))
    found = spans(listing)
    monkeypatch.setattr(Path, "iterdir", lambda _: pytest.fail("it was read again"))
    assert spans(listing) == found


@rule("archive-1")
def test_a_change_at_the_time_of_the_one_before_is_seen(tmp_path: Path) -> None:
    """The clocks of file systems count milliseconds, and some of them seconds."""
    listing, folder = Listing(tmp_path, "px"), TopicFolder(tmp_path, "px")
    archive(folder, [row(1)])
    day = folder.file(folder.parts()[0]).parent
    about = day.stat()
    assert spans(listing) == [(1, 1)]
    archive(folder, [row(2)])
    os.utime(day, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert spans(listing) == [(1, 1), (2, 2)]


@rule("archive-5")
def test_what_has_no_hole_counts(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "px")
    archive(folder, [row(1)], [row(2)], [row(3, NOON_MS + 5)], [row(4, NOON_MS + 9)])
    folder.file(folder.parts()[1]).unlink()
    parts = Listing(tmp_path, "px").parts()
    assert archived_of(parts, "e1") == Archived(3, 4, ((NOON_MS + 5, 3), (NOON_MS + 9, 4)))
    assert archived_of(parts, "e2") is None
