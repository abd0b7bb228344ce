"""Spark and the engine deliver the same, whichever way a plan goes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.columns.test_conflator import REDUCERS, REMOVED, conflation, recorded
from tests.pipeline.engine_deliveries import Delivered, Recorded, delivered, engine_deliveries
from tests.pipeline.merged import MERGER
from tests.pipeline.newest import newest_by_key
from tests.support.outside import require_ticks
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec, record_key
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.deliveries import combine
from tidegate.pipeline.columns.history import read_history
from tidegate.pipeline.columns.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.columns.rows import DELIVERIES, PUBLISHED
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.streams.plans import (
    Layout,
    PlanKind,
    by_shards,
    in_place,
    plan_latest,
    plan_recorded,
    recorded_lines,
    way_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
TICKS = 12_000
TICK_KEY = "[/tickerId,/exchange,/type]"


def rows(frame: DataFrame) -> list[Delivered]:
    return sorted((delivered(row.asDict()) for row in frame.collect()), key=str)


def shared_case() -> list[Recorded]:
    """Values 0 to 9 of five keys with removals between, in uneven steps of time."""
    told: list[tuple[str, int | None, int]] = [
        ("abcde"[n * 7 % 5], None if n % 11 == 3 else n * 3 % 10, (0, 1, 7, 19, 40, 41)[n * n % 6])
        for n in range(400)
    ]
    return recorded(told)


def frame_of(spark: SparkSession, messages: list[Recorded], parts: int) -> DataFrame:
    """The messages in so many partitions, each a file of its own, in order."""
    size = -(-len(messages) // parts)
    values = [
        (f"f{at // size:02}", 0, message.position, message.time_ms, *message[2:], None)
        for at, message in enumerate(messages)
    ]
    return spark.createDataFrame(values, PUBLISHED).coalesce(1).repartition(parts, "file") \
        .sortWithinPartitions("position")  # fmt: skip


@pytest.mark.parametrize("pace", Pace)
def test_a_shared_case_with_filter_reducers_and_removals(spark: SparkSession, pace: Pace) -> None:
    messages = shared_case()
    asked, options = conflation(pace, "/v > 2", REDUCERS, oof=True)
    expected = sorted(engine_deliveries(messages, options, "/v > 2"), key=str)
    assert {row.removed for row in expected} == {None, *REMOVED}
    several = plan_recorded(frame_of(spark, messages, 3), asked)
    assert several.way is PlanKind.BY_SHARDS
    assert rows(several.frame) == expected
    one = plan_recorded(frame_of(spark, messages, 1), asked)
    assert one.way is PlanKind.IN_PLACE
    assert rows(one.frame) == expected


def test_partitions_by_key_need_no_shuffle(spark: SparkSession) -> None:
    messages = shared_case()
    asked, options = conflation(Pace.KEY, "", "", oof=True)
    sharded = frame_of(spark, messages, 1).repartition(2, "key").sortWithinPartitions("position")
    plan = plan_recorded(sharded.withColumn("file", sharded.key.substr(0, 0)), asked, Layout.BY_KEY)
    assert plan.way is PlanKind.IN_PLACE
    assert rows(plan.frame) == sorted(engine_deliveries(messages, options), key=str)
    by_batch, _ = conflation(Pace.BATCH, "", "", oof=True)
    assert plan_recorded(sharded, by_batch, Layout.BY_KEY).way is PlanKind.BY_SHARDS


@pytest.mark.slow
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
    read = recorded_lines(read_history(spark, tmp_path))
    assert rows(in_place(read, asked)) == expected
    assert rows(by_shards(read, asked)) == expected


def test_the_newest_of_a_batch_is_shuffled_only_where_keys_are_anywhere(
    spark: SparkSession,
) -> None:
    messages = spark.sql(
        "SELECT '' AS file, 0L AS block, id AS position, CAST(NULL AS LONG) AS time_ms, "
        "CAST(NULL AS STRING) AS key, "
        "CAST(concat('{\"k\":', id % 5, '}') AS BINARY) AS body, CAST(NULL AS STRING) AS removed, "
        "CAST(NULL AS STRING) AS refused "
        "FROM range(0, 100, 1, 4)"
    )
    asked = replace(conflation(Pace.BATCH, "", "", oof=False)[0], sets_aside=True)
    anywhere = plan_latest(messages, asked)
    assert (anywhere.way, anywhere.frame.count()) == (PlanKind.LATEST, 5)
    by_key = messages.repartition(2, messages.position % 5)
    own = plan_latest(by_key, asked, Layout.BY_KEY)
    assert own.way is PlanKind.IN_PLACE
    assert sorted(row.position for row in own.frame.collect()) == [95, 96, 97, 98, 99]


def test_spark_agrees_with_one_pass_and_shuffles_only_winners(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT '' AS file, 0L AS block, id AS position, CAST(NULL AS LONG) AS time_ms, "
        "CAST(NULL AS STRING) AS key, CAST(CASE "
        "WHEN id % 100 = 99 THEN '{\"k\":' ELSE concat('{\"k\":', id % 7, CASE WHEN id % 2 = 0 "
        "THEN '.0' ELSE '' END, ',\"n\":', id, '}') END AS BINARY) AS body, "
        "CAST(NULL AS STRING) AS removed, "
        "CAST(NULL AS STRING) AS refused "
        "FROM range(0, 3000, 1, 3)"
    )
    asked = replace(conflation(Pace.BATCH, "", "", oof=False)[0], sets_aside=True)
    rows = plan_latest(frame, asked).frame.collect()
    published = [bytes(row.body) for row in frame.orderBy("position").collect()]
    kept = [bytes(row.value) for row in rows if row.refused is None]
    assert newest_by_key(kept, "k") == newest_by_key(published, "k")
    assert len(kept) == 7
    assert len([row for row in rows if row.refused]) == 30
    assert sum(row.messages for row in rows) == 3000
    shuffled = frame.mapInArrow(partial(combine, conflation=asked), DELIVERIES).count()
    assert shuffled == 3 * 7 + 30


@pytest.mark.parametrize(
    ("pace", "oof", "time", "way"),
    [
        (Pace.BATCH, False, None, PlanKind.LATEST),
        (Pace.BATCH, True, None, PlanKind.HELD),
        (Pace.KEY, False, None, PlanKind.HELD),
        (Pace.BATCH, False, TimeField(FieldPath.parse("/ts")), PlanKind.TIMED),
    ],
)
def test_a_running_stream_holds_only_what_it_must(
    pace: Pace, oof: bool, time: TimeField | None, way: PlanKind
) -> None:
    assert way_of(replace(conflation(pace, "", "", oof=oof)[0], time=time)) is way


def test_a_merger_sees_the_messages_of_a_key_in_their_order() -> None:
    assert way_of(conflation(Pace.BATCH, "", MERGER, oof=False)[0]) is PlanKind.HELD
