"""A checkpoint belongs to one stream, one process and one epoch of the sink."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.rules import rule
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.errors import CheckpointUnusable, InUse
from tidegate.pipeline.streams.checkpoint import Checkpoint, newest_planned, require_whole

TOML = """\
[pipeline.s]
key = ["/a"]
interval = "1s"
source = {kind = "tidegate", topic = "raw"}
sink = {topic = "newest"}
"""


def defined(folder: Path, old: str = "", new: str = "") -> StreamDefinition:
    path = folder / "s.toml"
    path.write_text(TOML.replace(old, new))
    return read_definitions(path)[0]


def test_a_checkpoint_is_taken_up_again(tmp_path: Path) -> None:
    with Checkpoint(defined(tmp_path)) as first:
        assert first.spark_folder == tmp_path / "checkpoints/s/spark"
    with Checkpoint(defined(tmp_path, '"1s"', '"2s"')):
        pass


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"raw"', '"other"', "source 'topic raw'"),
        ('"/a"', '"/b"', r"key '\[/a\]'"),
        ("newest", "x", "sink 'topic newest'"),
        ("pipeline.s]", 'pipeline.t]\ncheckpoint = "checkpoints/s"', "name 's'"),
    ],
)
def test_another_stream_does_not_continue_it(
    tmp_path: Path, old: str, new: str, field: str
) -> None:
    with Checkpoint(defined(tmp_path)):
        pass
    with (
        pytest.raises(CheckpointUnusable, match=f"was made with {field}"),
        Checkpoint(defined(tmp_path, old, new)),
    ):
        pass
    with Checkpoint(defined(tmp_path)):
        pass


def test_two_processes_do_not_share_it(tmp_path: Path) -> None:
    with (
        Checkpoint(defined(tmp_path)),
        pytest.raises(InUse, match="another process runs"),
        Checkpoint(defined(tmp_path)),
    ):
        pass
    with Checkpoint(defined(tmp_path)):
        pass


def test_an_unreadable_one_is_refused(tmp_path: Path) -> None:
    with Checkpoint(defined(tmp_path)):
        pass
    (tmp_path / "checkpoints/s/definition.json").write_text("{")
    with (
        pytest.raises(CheckpointUnusable, match="cannot be read"),
        Checkpoint(defined(tmp_path)),
    ):
        pass


@rule("pipeline-10")
def test_a_checkpoint_belongs_to_one_epoch_of_the_sink(tmp_path: Path) -> None:
    """Made again, or at another gateway, it has not what was sent before."""
    with Checkpoint(defined(tmp_path)) as checkpoint:
        for epochs in (["e1"], ["e1"], []):  # a sink without an epoch is any
            checkpoint.require_sink(epochs)
    with (
        Checkpoint(defined(tmp_path)) as checkpoint,
        pytest.raises(CheckpointUnusable, match=r"another epoch of topic newest \(e1, now e2"),
    ):
        checkpoint.require_sink(["e2"])


@rule("cluster-16")
def test_an_epoch_that_continues_the_sinks_is_the_sinks_from_then_on(tmp_path: Path) -> None:
    for epochs in (["e1"], ["e2", "e1"], ["e2"]):
        with Checkpoint(defined(tmp_path)) as checkpoint:
            checkpoint.require_sink(epochs)
    assert (tmp_path / "checkpoints/s/sink").read_text() == "e2"


def test_without_the_file_sink_a_stream_continues_in_another_epoch(tmp_path: Path) -> None:
    with Checkpoint(defined(tmp_path)) as checkpoint:
        checkpoint.require_sink(["e1"])
    (tmp_path / "checkpoints/s/sink").unlink()
    with Checkpoint(defined(tmp_path)) as checkpoint:
        checkpoint.require_sink(["e2"])
    assert (tmp_path / "checkpoints/s/sink").read_text() == "e2"


def test_each_run_has_a_number_above_all_before_it(tmp_path: Path) -> None:
    runs: list[int] = []
    for now_ms in (1_000, 5_000, 5_000, 4_000, 9_000):  # the clock stands, and is set back
        with Checkpoint(defined(tmp_path), partial(int, now_ms)) as checkpoint:
            runs.append(checkpoint.run)
    assert runs == [1_000, 5_000, 5_001, 5_002, 9_000]


def test_a_restored_folder_continues_above_the_runs_it_does_not_know(
    tmp_path: Path,
) -> None:
    with Checkpoint(defined(tmp_path), lambda: 1_000):
        pass
    copy = (tmp_path / "checkpoints/s/run").read_bytes()
    with Checkpoint(defined(tmp_path), lambda: 2_000) as lost:
        pass
    (tmp_path / "checkpoints/s/run").write_bytes(copy)
    with Checkpoint(defined(tmp_path), lambda: 3_000) as later:
        assert later.run > lost.run


def test_a_number_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    for text in ("", "nonsense"):
        with Checkpoint(defined(tmp_path)):
            pass
        (tmp_path / "checkpoints/s/run").write_text(text)
        with Checkpoint(defined(tmp_path), lambda: 7) as checkpoint:
            assert checkpoint.run == 7


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
    assert newest_planned(tmp_path) == -1


def test_one_of_a_batch_that_was_not_done_is_whole(tmp_path: Path) -> None:
    require_whole(written(tmp_path))
    assert newest_planned(tmp_path) == 11


def test_one_without_commits_is_whole(tmp_path: Path) -> None:
    (written(tmp_path) / "commits/10").unlink()
    require_whole(tmp_path)


@rule("pipeline-10")
@pytest.mark.parametrize("name", ["metadata", "offsets/11", "commits/10"])
@pytest.mark.parametrize("content", [b"", b"v1", b"v1\n", b"v1\n{", b"\xff\n{}", b"v1\n{\xff}"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (written(tmp_path) / name).write_bytes(content)
    with pytest.raises(CheckpointUnusable, match=f"{name} is not whole: put all of it"):
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
    with pytest.raises(CheckpointUnusable, match=f"{named} is gone: put all of it"):
        require_whole(tmp_path)
