"""The newest message of each key, out of files that are read from their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.archive.archives import NOON_MS, archive, removal, row
from tests.support.rules import rule
from tidegate.app.archive.archive import Listing
from tidegate.app.archive.parquet import ArchiveDamaged
from tidegate.app.archive.state import StateReader, last_position_at
from tidegate.conflation.definition import Kind
from tidegate.keys.archived import Part
from tidegate.pipeline.archive.folder import TopicFolder


@pytest.fixture
def parts(tmp_path: Path) -> dict[Part, Path]:
    folder = TopicFolder(tmp_path, "px")
    archive(folder, [row(1), row(2, name="b")], [removal(3), row(4, name="c")])
    archive(folder, [row(5, NOON_MS + 9, name="b"), row(6, NOON_MS + 5)])
    return Listing(tmp_path, "px").parts()


def state(parts: dict[Part, Path], position: int, wanted: set[str] | None = None) -> StateReader:
    reader = StateReader(parts, "e1", position, Kind.JSON, wanted)
    while reader.step():
        pass
    return reader


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (6, {'["a"]': 6, '["b"]': 5, '["c"]': 4}),
        (5, {'["a"]': -3, '["b"]': 5, '["c"]': 4}),
        (3, {'["a"]': -3, '["b"]': 2}),
        (1, {'["a"]': 1}),
        (0, {}),
    ],
)
def test_the_newest_message_of_each_key(
    parts: dict[Part, Path], position: int, expected: dict[str, int]
) -> None:
    reader = state(parts, position)
    assert reader.is_whole
    found = {text: -it.offset if it.removed else it.offset for text, it in reader.found.items()}
    assert found == expected


def test_reading_ends_once_all_that_is_wanted_is_found(parts: dict[Part, Path]) -> None:
    first = next(iter(parts.values()))
    first.write_bytes(b"it is not read")
    reader = state(parts, 6, {'["b"]', '["a"]'})
    assert reader.is_whole
    assert {frame.offset for frame in reader.found.values()} == {5, 6}
    with pytest.raises(ArchiveDamaged):
        state(parts, 6, {'["z"]'})


def test_a_hole_or_a_late_beginning_is_not_whole(parts: dict[Part, Path]) -> None:
    assert not state(parts, 7).is_whole
    del parts[next(iter(parts))]
    assert not state(parts, 6).is_whole


@rule("archive-1")
@pytest.mark.parametrize(("time", "place"), [(8, 4), (9, 6), (99, 6)])
def test_a_time_leads_to_a_place(parts: dict[Part, Path], time: int, place: int) -> None:
    """The clock never runs back."""
    part = list(parts)[-1]
    assert last_position_at(parts[part], part, NOON_MS + time) == (4 if time < 9 else place)
