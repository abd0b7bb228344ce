"""How far a replay is, kept over a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipeline.archive.recorded import RecordedPlace
from tidegate.pipeline.archive.replaying import PRODUCER_PREFIX, Mark, Noted
from tidegate.pipeline.errors import CheckpointMismatch


def test_what_was_noted_is_there_again(tmp_path: Path) -> None:
    mark = Mark(tmp_path / "mark", "a to b")
    with mark.held() as first:
        assert (first.of, first.sequence) == ("a to b", 0)
        assert first.producer.startswith(PRODUCER_PREFIX)
        noted = Noted(first.of, first.producer, 7, RecordedPlace("e1", 10), RecordedPlace("e1", 20))
        mark.note(noted)
    with Mark(tmp_path / "mark", "a to b").held() as again:
        assert again == noted
        mark.forget()
    with mark.held() as anew:
        assert anew.sequence == 0
        assert anew.producer != first.producer


def test_one_process_replays(tmp_path: Path) -> None:
    with (
        Mark(tmp_path, "a").held(),
        pytest.raises(CheckpointMismatch, match="another process"),
        Mark(tmp_path, "a").held(),
    ):
        pass


def test_a_mark_of_another_replay_or_none_is_refused(tmp_path: Path) -> None:
    mark = Mark(tmp_path, "a to b")
    with mark.held() as first:
        mark.note(first)
    with (
        pytest.raises(CheckpointMismatch, match=r"another replay \(a to b\)"),
        Mark(tmp_path, "c").held(),
    ):
        pass
    (tmp_path / "replay.json").write_bytes(b"{}")
    with pytest.raises(CheckpointMismatch, match="remove it"), mark.held():
        pass
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointMismatch, match="file"), Mark(tmp_path / "file" / "x", "a").held():
        pass


def test_a_disk_that_takes_nothing_is_told_with_the_place(tmp_path: Path) -> None:
    mark = Mark(tmp_path, "a")
    (tmp_path / "replay.unfinished").mkdir()
    with mark.held() as first, pytest.raises(CheckpointMismatch, match=r"replay\.json: Is a"):
        mark.note(first)


def test_what_goes_wrong_inside_is_not_taken_for_another_process(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), Mark(tmp_path, "a").held():
        raise BlockingIOError
