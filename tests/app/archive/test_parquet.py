"""Messages out of Parquet files, as the journal had them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.archive.archives import NOON_MS, archive, files, removal, row
from tests.support.rules import rule
from tidegate.app.archive import parquet
from tidegate.app.archive.archive import Listing
from tidegate.app.archive.parquet import ArchiveDamaged, frame_of, piece
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.keys.archived import Part
from tidegate.pipeline.archive import writing
from tidegate.pipeline.archive.folder import TopicFolder


def kept(tmp_path: Path) -> dict[Part, Path]:
    folder = TopicFolder(tmp_path, "px")
    archive(folder, [row(1), removal(2), row(3)], [row(4), row(5)])
    return Listing(tmp_path, "px").parts()


def offsets(frames: list[Frame]) -> list[int]:
    return [frame.offset for frame in frames]


@rule("archive-3")
def test_messages_are_as_the_journal_had_them(tmp_path: Path) -> None:
    """Rule archive-3 for the removal."""
    first, second = piece(kept(tmp_path), "e1", 0, 2, Kind.JSON)
    assert first == Frame(1, b'{"k":"a","n":1}', '["a"]', NOON_MS)
    assert second == Tombstone(2, b"", '["a"]', NOON_MS, reason=RemovalReason.DELETED)


@pytest.mark.parametrize(
    ("position", "through", "expected"),
    [(0, 9, [1, 2, 3, 4, 5]), (2, 4, [3, 4]), (3, 9, [4, 5]), (5, 9, []), (9, 12, [])],
)
def test_a_piece_follows_a_position(
    tmp_path: Path, position: int, through: int, expected: list[int]
) -> None:
    assert offsets(piece(kept(tmp_path), "e1", position, through, Kind.JSON)) == expected


def test_a_piece_ends_at_a_hole_and_is_of_one_epoch(tmp_path: Path) -> None:
    parts = kept(tmp_path)
    assert piece(parts, "e2", 0, 9, Kind.JSON) == []
    archive(TopicFolder(tmp_path, "px"), [row(6)], [row(7)])
    files(TopicFolder(tmp_path, "px"))[2].unlink()
    parts = Listing(tmp_path, "px").parts()
    assert offsets(piece(parts, "e1", 3, 9, Kind.JSON)) == [4, 5]
    assert piece(parts, "e1", 5, 9, Kind.JSON) == []


def test_a_piece_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = kept(tmp_path)
    monkeypatch.setattr(parquet, "PIECE_ROWS_MAX", 2)
    assert offsets(piece(parts, "e1", 1, 9, Kind.JSON)) == [2, 3]
    monkeypatch.setattr(parquet, "PIECE_BYTES_MAX", 1)
    assert offsets(piece(parts, "e1", 2, 9, Kind.JSON)) == [3]


def test_row_groups_that_lie_before_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROW_GROUP_ROWS", 2)
    folder = TopicFolder(tmp_path, "px")
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", 1)
    [path] = archive(folder, [row(at) for at in range(1, 4)])
    assert [found[0] for found in parquet.rows(path, 2)] == [3]


def test_texts_and_bytes_are_what_was_published() -> None:
    assert frame_of((1, 2, None, '"a\\n\\u00e9"', None), Kind.TEXT).payload == b"a\n\xc3\xa9"
    assert frame_of((1, 2, None, '"AAE="', None), Kind.BINARY).payload == b"\x00\x01"
    assert frame_of((1, 2, None, "[1]", None), Kind.SERIES).key == ""


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [(Kind.TEXT, "[1]", None), (Kind.BINARY, '"no base64"', None), (Kind.JSON, None, "rust")],
)
def test_a_row_that_is_no_message_of_the_topic_is_damage(
    kind: Kind, value: str | None, reason: str | None
) -> None:
    with pytest.raises(ArchiveDamaged, match="position 1: "):
        frame_of((1, 2, None, value, reason), kind)


@rule("archive-3")
def test_why_a_record_left_is_kept() -> None:
    for reason in RemovalReason:
        frame = frame_of((1, 2, '["a"]', None, reason.value), Kind.JSON)
        assert isinstance(frame, Tombstone)
        assert frame.reason is reason


def test_a_file_that_cannot_be_read_is_damage_and_a_missing_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ArchiveDamaged), parquet.opened(tmp_path):
        pass
    with pytest.raises(FileNotFoundError), parquet.opened(tmp_path / "none"):
        pass


def test_a_damaged_file_differs_from_a_missing_one(tmp_path: Path) -> None:
    parts = kept(tmp_path)
    path = next(iter(parts.values()))
    path.write_bytes(b"PAR1PAR1PAR1")
    with pytest.raises(ArchiveDamaged):
        piece(parts, "e1", 0, 9, Kind.JSON)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        piece(parts, "e1", 0, 9, Kind.JSON)
