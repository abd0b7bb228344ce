from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.pipeline.errors import CheckpointMismatch
from tidegate.pipeline.sinks.sink import Batch
from tidegate.pipeline.streams.shard_state import SHARDS, ShardState


def batch(number: int, *, is_end: bool = False) -> Batch:
    return Batch(number, 1, "q", is_end=is_end)


def table(value: int, shards: int = 2) -> pa.Table:
    found = pa.table({"value": [value]})
    return found.replace_schema_metadata({SHARDS: str(shards)})


def filled(folder: Path, *labels: str) -> ShardState:
    held = ShardState(folder / "held")
    for label in labels:
        for shard in range(2):
            held.write(label, shard, table(shard), attempt=7)
    return held


def test_what_is_written_is_read_whoever_wrote_it_last(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000000")
    held.write("000000000", 1, table(1), attempt=8)
    assert held.read("000000000", 1).to_pylist() == [{"value": 1}]
    assert [path.name for path in sorted((tmp_path / "held/000000000").iterdir())] == [
        "0000.arrow",
        "0001.arrow",
    ]


def test_a_batch_goes_on_from_the_one_before_or_from_its_end(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000006")
    assert held.before(batch(0)) is None
    assert held.before(batch(7)) == "000000006"
    assert held.before(batch(6, is_end=True)) == "000000006"
    filled(tmp_path, "000000006_end")
    assert held.before(batch(7)) == "000000006"  # the end was begun, not finished
    held.end(6)
    assert held.before(batch(7)) == "000000006_end"
    assert held.before(batch(8)) == "000000007"


def test_shards_are_as_many_as_there_were(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000006")
    assert held.shards(None, 5) == 5
    assert held.shards("000000006", 5) == 2


def test_what_is_gone_is_said_and_not_passed_over(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000006")
    with pytest.raises(CheckpointMismatch, match=r"000000005/0000.arrow is missing or damaged"):
        held.shards("000000005", 2)
    held.path("000000006", 0).write_bytes(b"ARROW1")
    with pytest.raises(CheckpointMismatch, match=r"000000006/0000.arrow is missing or damaged"):
        held.read("000000006", 0)
    filled(tmp_path, "000000006").path("000000006", 1).unlink()
    with pytest.raises(CheckpointMismatch, match=r"000000006/0001.arrow is missing or damaged"):
        held.shards("000000006", 2)


def test_notes_of_the_newest_tables_are_summed_up(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000005", "000000006")
    assert held.total(SHARDS) == 4
    assert held.total(b"unheard of") == 0
    held.path("000000006", 1).write_bytes(b"ARROW1")
    assert held.total(SHARDS) == 2
    assert ShardState(tmp_path / "none").total(SHARDS) == 0


def test_what_no_batch_needs_is_forgotten(tmp_path: Path) -> None:
    labels = ["000000004", "000000005", "000000005_end", "000000006"]
    held = filled(tmp_path, *labels)
    assert held.last is not None
    assert (held.last.name, held.last_number) == ("000000006", 6)
    held.forget(7)
    assert sorted(path.name for path in held.folder.iterdir()) == ["000000006"]
    assert ShardState(tmp_path / "none").last_number is None
