"""Rows become files: each a stretch of positions of one day."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.archive.archives import (
    DAY_MS,
    NOON_MS,
    archive,
    positions,
    removal,
    row,
    written,
)
from tests.support.rules import rule
from tidegate.keys.archived import COLUMNS
from tidegate.pipeline.archive.folder import TopicFolder
from tidegate.pipeline.archive.writing import ROWS, Edge, archive_rows, edge_of
from tidegate.pipeline.errors import ArchiveUnusable
from tidegate.pipeline.format.envelope import column_batch

MIDNIGHT_MS = NOON_MS + DAY_MS // 2


@rule("archive-3")
def test_a_file_has_all_that_was_published_and_its_name_says_which(tmp_path: Path) -> None:
    """Rule archive-3 for the removal."""
    folder = TopicFolder(tmp_path, "ticks")
    [path] = archive(folder, [row(4), removal(5), row(6, name="b")])
    assert path.parent.name == "date=2024-10-04"
    table = pq.read_table(path, partitioning=None)
    assert table.schema.equals(ROWS)
    assert table.to_pylist()[1] == {
        "epoch": "e1",
        "position": 5,
        "timestamp_ms": NOON_MS,
        "key": '["a"]',
        "value": None,
        "reason": "deleted",
    }
    [part] = folder.parts()
    assert (part.epoch, part.first, part.last, part.stamp_ms) == ("e1", 4, 6, NOON_MS)


def test_a_footer_shows_readers_what_to_skip(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    [path] = archive(folder, [row(at, NOON_MS + at) for at in range(1, 30_001)])
    footer = pq.read_metadata(path)
    spans = [
        (column.statistics.min, column.statistics.max)
        for group in range(footer.num_row_groups)
        for column in [footer.row_group(group).column(ROWS.get_field_index("position"))]
    ]
    assert spans == [(1, 30_000)]
    value = footer.row_group(0).column(ROWS.get_field_index("value"))
    assert value.statistics is None or not value.statistics.has_min_max


@rule("archive-1")
def test_a_day_ends_a_file(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    before = [row(1, MIDNIGHT_MS - 1), row(2, MIDNIGHT_MS), row(3, MIDNIGHT_MS - 1)]
    found = archive(folder, before, [row(4, MIDNIGHT_MS - 9)])
    assert [path.parent.name for path in found] == [
        "date=2024-10-04",
        "date=2024-10-05",
        "date=2024-10-05",
    ]
    assert positions(folder) == [1, 2, 3, 4]


@rule("archive-2")
def test_a_batch_that_comes_again_adds_what_is_missing(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    archive(folder, [row(1), row(2)], [row(1), row(2), row(3)], [row(1), row(2), row(3)])
    assert positions(folder) == [1, 2, 3]


def test_a_hole_is_refused(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    archive(folder, [row(1), row(2)])
    with pytest.raises(ArchiveUnusable, match="position 3 of epoch e1 is missing"):
        archive(folder, [row(4)])
    with pytest.raises(ArchiveUnusable, match="position 4 of epoch e1 is missing"):
        archive(folder, [row(3), row(5)])


@rule("archive-1")
def test_another_epoch_sorts_behind_whatever_its_clock_says(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    archive(folder, [row(1), row(2, NOON_MS + 50), row(3)])
    archive(folder, [row(1, NOON_MS - DAY_MS), row(2)], epoch="a0")
    assert [(part.epoch, part.stamp_ms - NOON_MS) for part in folder.parts()] == [
        ("e1", 0),
        ("a0", 51),
    ]


def test_a_file_that_is_not_whole_is_one_sentence(tmp_path: Path) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    [file] = written(folder, [row(1)], Edge("e1", None, 0))
    path = folder.unfinished / file.name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ArchiveUnusable, match="is not a complete Parquet file"):
        edge_of(path, file.part)


def test_rows_are_called_as_an_archive_calls_them() -> None:
    columns = [b'["a"]'] * 2, [b'{ "n":1.0 }', None], [7, 8], [None, "expired"]
    found = archive_rows(column_batch(columns, "e1", [5, 6]), "e1")
    assert found.schema.equals(ROWS)
    assert found.schema.names == list(COLUMNS)
    assert [list(row.values()) for row in found.to_pylist()] == [
        ["e1", 5, 7, '["a"]', '{ "n":1.0 }', None],
        ["e1", 6, 8, '["a"]', None, "expired"],
    ]
