"""Spark and the engine make the same deliveries of recorded messages."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.pipeline.columns.test_conflation import REDUCERS, REMOVED, conflation, recorded
from tests.pipeline.engine_deliveries import Delivered, Recorded, delivered, engine_deliveries
from tests.support.outside import require_ticks
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec, record_key
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.history import read_history
from tidegate.pipeline.columns.intake import REFUSED
from tidegate.pipeline.columns.recorded import (
    by_shards,
    conflate_recorded,
    in_place,
)
from tidegate.pipeline.columns.rows import PUBLISHED, ROWS, packed, to_tasks
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.streams.shard_state import NONE, NOTHING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TICKS = 12_000
TICK_KEY = "[/tickerId,/exchange,/type]"


def rows(frame: DataFrame) -> list[Delivered]:
    return sorted((delivered(row.asDict()) for row in frame.collect()), key=str)


def shared_messages() -> list[Recorded]:
    """Values 0 to 9 of five keys with removals between, in uneven steps of time."""
    steps: list[tuple[str, int | None, int]] = [
        ("abcde"[n * 7 % 5], None if n % 11 == 3 else n * 3 % 10, (0, 1, 7, 19, 40, 41)[n * n % 6])
        for n in range(400)
    ]
    return recorded(steps)


def frame_of(spark: SparkSession, messages: list[Recorded], parts: int) -> DataFrame:
    """The messages in so many partitions, each a file of its own, in order."""
    size = -(-len(messages) // parts)
    values = [
        (f"f{at // size:02}", 0, message.position, message.time_ms, *message[2:], None)
        for at, message in enumerate(messages)
    ]
    return spark.createDataFrame(values, PUBLISHED).coalesce(1).repartition(parts, "file") \
        .sortWithinPartitions("position")  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("pace", [Pace.KEY, pytest.param(Pace.BATCH, marks=pytest.mark.nightly)])
def test_a_shared_case_with_filter_reducers_and_removals(spark: SparkSession, pace: Pace) -> None:
    messages = shared_messages()
    asked, options = conflation(pace, "/v > 2", REDUCERS, oof=True)
    expected = sorted(engine_deliveries(messages, options, "/v > 2"), key=str)
    assert {row.removed for row in expected} == {None, *REMOVED}
    assert rows(conflate_recorded(frame_of(spark, messages, 3), asked)) == expected
    assert rows(conflate_recorded(frame_of(spark, messages, 1), asked)) == expected


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("pace", Pace)
def test_a_slice_of_the_recorded_ticks(spark: SparkSession, tmp_path: Path, pace: Pace) -> None:
    with gzip.open(require_ticks()) as ticks:
        lines = [line.strip() for line in islice(ticks, TICKS)]
    (tmp_path / "ticks.ndjson").write_bytes(b"\n".join(lines))
    spec = KeySpec.parse(TICK_KEY)
    key_of = record_key(spec)
    messages = [
        Recorded(position, json.loads(line)["ts"], key_of(line), line)
        for position, line in enumerate(lines, start=1)
    ]
    options = f"conflation=1s,pace={pace}"
    expected = sorted(engine_deliveries(messages, options, key=TICK_KEY), key=str)
    asked = Conflation(
        spec, Interval(1_000 * MILLISECOND_NS, pace), TimeField(FieldPath.parse("/ts"))
    )
    read = read_history(spark, tmp_path)
    assert rows(in_place(read, asked)) == expected
    assert rows(by_shards(read, asked)) == expected


@pytest.mark.spark
def test_partitions_by_key_need_no_shuffle(spark: SparkSession) -> None:
    messages = shared_messages()
    sharded = frame_of(spark, messages, 1).repartition(2, "key").sortWithinPartitions("position")
    for pace, has_shuffle in ((Pace.KEY, False), (Pace.BATCH, True)):
        asked, options = conflation(pace, "", "", oof=True)
        first = sharded.withColumn("file", sharded.key.substr(0, 0))
        frame = conflate_recorded(first if pace is Pace.KEY else sharded, asked, by_key=True)
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert (plan.count("Exchange") > 2) is has_shuffle, plan
        if pace is Pace.KEY:
            assert rows(frame) == sorted(engine_deliveries(messages, options), key=str)


@pytest.mark.spark
def test_every_task_has_one_shard(spark: SparkSession) -> None:
    streams = [*range(REFUSED, 6)]
    blocks = [packed([NOTHING.block(one, NONE.astype(np.bool_), [], NONE)]) for one in streams]
    rows_of_spark = [row for block in blocks for row in block.to_pylist()]
    tasks = to_tasks(spark.createDataFrame(rows_of_spark, ROWS), 6).rdd.glom().collect()
    found = [sorted({row.stream for row in task}) for task in tasks]
    assert found == [[0], [1], [2], [3], [4], [REFUSED, 5]]
