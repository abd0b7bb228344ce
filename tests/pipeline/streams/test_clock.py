from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.pipeline.journals import Journals
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.pipeline.columns.saving import DUE
from tidegate.pipeline.streams.clock import ClockReader
from tidegate.pipeline.streams.shard_state import SHARDS, ShardState
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def holding(folder: Path, *due_ns: int) -> ShardState:
    """What is held is due then, a shard each."""
    held = ShardState(folder)
    for shard, due in enumerate(due_ns):
        notes = {SHARDS: str(len(due_ns)), DUE: str(due)}
        table = pa.table({"key": ["[1]"]}).replace_schema_metadata(notes)
        held.write("000000000", shard, table, attempt=0)
    return held


@pytest.mark.parametrize(
    ("due_ns", "offset"), [((), 0), ((2**63 - 1, 40), 40), ((2**63 - 1,), 0), ((50, 30), 30)]
)
def test_the_earliest_due_time_is_a_batch_once_it_has_come(
    tmp_path: Path, due_ns: tuple[int, ...], offset: int
) -> None:
    clock = ClockReader(holding(tmp_path, *due_ns))
    start = clock.initialOffset()
    limit = clock.getDefaultReadLimit()
    assert limit == ReadAllAvailable()
    found = clock.latestOffset(start, limit)
    assert found == {"due_ns": offset}
    assert clock.latestOffset(found, limit) == found  # and is one once
    assert clock.partitions(start, found) == []


def test_the_clock_has_no_batches_for_recorded_input(tmp_path: Path) -> None:
    clock = ClockReader(holding(tmp_path, 40))
    clock.prepareForTriggerAvailableNow()
    assert clock.latestOffset({"due_ns": 0}, ReadAllAvailable()) == {"due_ns": 0}


@rule("pipeline-4")
@pytest.mark.spark
@pytest.mark.nightly
def test_what_is_held_goes_out_though_nothing_more_is_published(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    """A key goes with the first batch at or after its due time."""
    from tidegate.pipeline.definitions.stream import read_definitions
    from tidegate.pipeline.streams.checkpoint import Checkpoint

    journals.topic("raw", [b'{"k":1,"n":1}', b'{"k":1,"n":2}'])
    path = tmp_path / "s.toml"
    path.write_text(
        f'gateway = "{journals.address}"\n[pipeline.s]\nkey = ["/k"]\ninterval = "500ms"\n'
        'pace = "key"\nsource = {kind = "tidegate", topic = "raw"}\nsink = {topic = "newest"}\n'
    )
    [definition] = read_definitions(path)
    stream = Stream(definition)
    with Checkpoint(definition) as checkpoint:
        stream.start(spark, checkpoint, available_now=False)
        assert stream.query is not None
        deadline = time.monotonic() + HANGS_S
        while not journals.topics["newest"].values and time.monotonic() < deadline:
            assert stream.query.isActive, stream.query.exception()
            time.sleep(0.05)
        stream.query.stop()
    assert journals.topics["newest"].values == [b'{"k":1,"n":2}']
