"""What is known of a recorded message."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import DAY_MS, NOON_MS, archive, files, removal, row
from tests.support.rules import rule
from tidegate.pipeline.archive.folder import TopicFolder, compact
from tidegate.pipeline.archive.recorded import (
    BEGINNING,
    Recorded,
    RecordedClock,
    RecordedPlace,
    SourceLocation,
    Window,
    read_archive,
)
from tidegate.pipeline.errors import ArchiveUnusable


def test_the_recorded_clock_never_runs_back() -> None:
    clock = RecordedClock(50)
    assert [clock.at(time_ms) for time_ms in (40, 60, 55, 61)] == [50, 60, 60, 61]


@rule("archive-1")
def test_a_window_is_half_open() -> None:
    window = Window(10, 20)
    assert [window.has_begun(at) for at in (9, 10)] == [False, True]
    assert [window.is_over(at) for at in (19, 20)] == [False, True]
    assert Window().has_begun(0)
    assert not Window().is_over(1 << 60)


def test_a_message_weighs_what_its_value_does() -> None:
    location, place = SourceLocation("f", "line", 1), RecordedPlace("e1", 1)
    assert Recorded(location, place, 0, None, b"abc").size == 3
    assert Recorded(location, place, 0, '["a"]', None, "deleted").size == 0


def test_the_place_of_a_message_is_in_words() -> None:
    assert str(SourceLocation("a.ndjson", "line", 1007)) == "a.ndjson, line 1007"


EVERYTHING = Window()


def places(
    folder: TopicFolder, after: RecordedPlace = BEGINNING, window: Window = EVERYTHING
) -> str:
    return " ".join(
        f"{each.place.epoch}-{each.place.position}" for each in read_archive(folder, after, window)
    )


@pytest.fixture
def folder(tmp_path: Path) -> TopicFolder:
    found = TopicFolder(tmp_path, "ticks")
    archive(found, [row(1), row(2, NOON_MS + 20)], [removal(3, NOON_MS + 10), row(4, NOON_MS + 30)])
    archive(found, [row(1, NOON_MS - DAY_MS), row(2, NOON_MS + DAY_MS)], epoch="a0")
    return found


def test_messages_come_in_the_order_of_publication(folder: TopicFolder) -> None:
    assert places(folder) == "e1-1 e1-2 e1-3 e1-4 a0-1 a0-2"
    third = next(islice(read_archive(folder, BEGINNING, EVERYTHING), 2, None))
    assert (third.key_text, third.value, third.reason) == ('["a"]', None, "deleted")
    assert third.clock_ms == NOON_MS + 20


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (RecordedPlace("e1", 2), "e1-3 e1-4 a0-1 a0-2"),
        (RecordedPlace("e1", 4), "a0-1 a0-2"),
        (RecordedPlace("a0", 1), "a0-2"),
        (RecordedPlace("a0", 2), ""),
    ],
)
def test_reading_continues_after_a_place(
    folder: TopicFolder, after: RecordedPlace, expected: str
) -> None:
    assert places(folder, after) == expected


@rule("archive-1")
@pytest.mark.parametrize(
    ("from_ms", "until_ms", "expected"),
    [
        (20, None, "e1-2 e1-3 e1-4 a0-1 a0-2"),
        (21, 31, "e1-4"),
        (None, 20, "e1-1"),
        (31, 32, "a0-1"),
        (DAY_MS, None, "a0-2"),
        (20, 20, ""),
    ],
)
def test_a_window_is_by_the_recorded_clock(
    folder: TopicFolder, from_ms: int | None, until_ms: int | None, expected: str
) -> None:
    ends = [None if end is None else NOON_MS + end for end in (from_ms, until_ms)]
    assert places(folder, BEGINNING, Window(*ends)) == expected


@rule("archive-1")
def test_files_that_are_put_together_meanwhile_are_found_there(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    archive(folder, *([row(at)] for at in range(1, 9)))
    reading = read_archive(folder, BEGINNING, EVERYTHING)
    read = [message.place.position for message in islice(reading, 3)]
    compact(folder)
    assert read + [message.place.position for message in reading] == list(range(1, 9))


def test_a_gap_and_a_damaged_file_are_errors(folder: TopicFolder) -> None:
    first, second, *_ = files(folder)
    second.write_bytes(first.read_bytes()[:-4])
    with pytest.raises(ArchiveUnusable, match="cannot be read"):
        places(folder, RecordedPlace("e1", 2))
    archive(folder, [row(3, NOON_MS + DAY_MS)], [row(4, NOON_MS + DAY_MS)], epoch="a0")
    folder.file(folder.parts()[-2]).unlink()
    with pytest.raises(ArchiveUnusable, match="position 3 is missing"):
        places(folder, RecordedPlace("a0", 1))
    with pytest.raises(ArchiveUnusable, match="no longer has epoch zz"):
        places(folder, RecordedPlace("zz", 1))
