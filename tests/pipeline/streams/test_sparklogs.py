from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rules import rule
from tidegate.pipeline.errors import CheckpointMismatch
from tidegate.pipeline.streams.checkpoint import planned, require_whole

OFFSETS = b'v1\n{"batchWatermarkMs":0}\n{"bookmark":"e-4"}\n-'


def written(folder: Path) -> Path:
    """A checkpoint in which batch 11 was planned and not done."""
    for name, content in {
        "metadata": b'{"id":"7"}',
        "offsets/9": OFFSETS,
        "offsets/10": OFFSETS,
        "offsets/11": OFFSETS,
        "offsets/.12.tmp": b"",
        "commits/10": b'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_one_that_was_never_used_is_whole(tmp_path: Path) -> None:
    require_whole(tmp_path)
    assert planned(tmp_path) == -1


def test_one_of_a_batch_that_was_not_done_is_whole(tmp_path: Path) -> None:
    require_whole(written(tmp_path))
    assert planned(tmp_path) == 11


def test_one_without_commits_is_whole(tmp_path: Path) -> None:
    (written(tmp_path) / "commits/10").unlink()
    require_whole(tmp_path)


@rule("pipeline-10")
@pytest.mark.parametrize("name", ["metadata", "offsets/11", "commits/10"])
@pytest.mark.parametrize("content", [b"", b"v1", b"v1\n", b"v1\n{", b"\xff\n{}", b"v1\n{\xff}"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (written(tmp_path) / name).write_bytes(content)
    with pytest.raises(CheckpointMismatch, match=f"{name} is not whole: put all of it"):
        require_whole(tmp_path)


@rule("pipeline-10")
@pytest.mark.parametrize(
    ("gone", "named"),
    [(["metadata"], "metadata"), (["offsets/11", "offsets/10"], "offsets/10")],
)
def test_a_file_that_is_gone_is_named(tmp_path: Path, gone: list[str], named: str) -> None:
    written(tmp_path)
    for name in gone:
        (tmp_path / name).unlink()
    with pytest.raises(CheckpointMismatch, match=f"{named} is gone: put all of it"):
        require_whole(tmp_path)
