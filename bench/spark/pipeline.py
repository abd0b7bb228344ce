"""Conflation on Spark beside parsing alone, Spark's own state, and polars.

`python -m bench pipeline` fails if the deliveries of polars are not the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.spark import polars_baseline
from bench.spark.polars_baseline import Outcome
from bench.spark.ticks import lines_of, recorded_day
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.history import read_history
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.columns.reading import TimeField
from tidegate.pipeline.columns.recorded import by_shards, conflate_recorded, recorded_lines
from tidegate.pipeline.planner.choices import Question, add_tallies, tally_choices
from tidegate.pipeline.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = KeySpec.of(["/tickerId", "/exchange", "/type"])
TIME = TimeField(FieldPath.parse("/ts"))
SECOND_NS = 1_000 * MILLISECOND_NS
PLANNED = 5_000_000

Figure = tuple[str, float, str]


def figures() -> Iterator[Figure]:
    """Yield name, value and unit of each figure; nothing without the recorded ticks."""
    day = recorded_day()
    if day is None:
        return
    theirs = polars_baseline.deliveries(day)  # also warms polars up
    yield from _polars(day, theirs)
    spark = open_session("local[2]")
    try:
        yield from _conflation(spark, day, theirs)
        yield from _planning(spark)
    finally:
        spark.stop()


def _conflation(spark: SparkSession, path: Path, theirs: Outcome) -> Iterator[Figure]:
    from bench.spark import stateful  # imports Spark, which other suites do not need

    lines = recorded_lines(read_history(spark, path))
    by_key = Conflation(KEY, Interval(SECOND_NS, Pace.KEY), TIME)
    counted = lines.mapInArrow(partial(count_parsed, conflation=by_key), "parsed long")
    messages = counted.groupBy().sum().collect()[0][0]  # also warms the workers up
    parsed_s = seconds(counted.collect)
    yield "rows parsed and counted", messages / parsed_s, "messages/s"
    deliveries = conflate_recorded(lines, by_key)
    conflated_s = seconds(lambda: run(deliveries))
    yield "conflated by key, 1 s", messages / conflated_s, "messages/s"
    yield "conflated by key, of parsed and counted", 100 * parsed_s / conflated_s, "percent"
    by_batch = Conflation(KEY, Interval(SECOND_NS, Pace.BATCH), TIME)
    batches = conflate_recorded(lines, by_batch)
    batch_s = seconds(lambda: run(batches))
    yield "conflated by batch, 1 s", messages / batch_s, "messages/s"
    ours = outcome(batches)
    if ours != theirs:
        raise ValueError(f"ours {ours}, those of polars {theirs}")
    yield "conflated by batch: equal to those of polars", ours.rows, "rows"
    shards_s = seconds(lambda: run(by_shards(lines, by_key)))
    yield "conflated by key, shuffled by shards", messages / shards_s, "messages/s"
    for name, processor in (
        ("plain transformWithState", stateful.LatestOfKey),
        ("transformWithState, state once a batch", stateful.LatestOfKeyWithCare),
    ):
        rate = stateful.stateful_rate(spark, lines_of(path), processor)
        yield f"{name}, timers of 1 s", rate, "messages/s"
        yield f"conflated by key, of {name}", messages / conflated_s / rate, "times"


def _polars(path: Path, theirs: Outcome) -> Iterator[Figure]:
    """Yield the figures of polars alone on the same file."""
    messages = theirs.messages
    counted_s = seconds(lambda: polars_baseline.counted(path))
    yield "polars: parsed and counted", messages / counted_s, "messages/s"
    same_s = seconds(lambda: polars_baseline.deliveries(path))
    yield "polars: conflated by batch, 1 s", messages / same_s, "messages/s"
    tumbling_s = seconds(lambda: polars_baseline.tumbling(path))
    yield "polars: tumbling windows of 1 s", messages / tumbling_s, "messages/s"


def _planning(spark: SparkSession) -> Iterator[Figure]:
    """Plan five million messages made by Spark: two keys, three intervals, two paces."""
    lines = spark.range(0, PLANNED, 1, 2).selectExpr(
        "'made' AS file",
        f"id DIV {PLANNED // 2} AS block",
        'CAST(concat(\'{"a":"T\', id % 1000, \'","b":"\', id % 7, \'","ts":\', id DIV 4, \'}\') '
        "AS BINARY) AS line",
        "CAST(NULL AS LONG) AS time_ms",
    )
    keys = (KeySpec.of(["/a"]), KeySpec.of(["/a", "/b"]))
    intervals = tuple(ms * MILLISECOND_NS for ms in (100, 1_000, 5_000))
    question = Question(keys, intervals, tuple(Pace), TIME, 2)
    read = spark.sparkContext.accumulator(0)

    def counting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    watched = lines.mapInArrow(counting, lines.schema)
    seconds_taken = seconds(lambda: add_tallies(tally_choices(watched, question), question))
    yield "planned with 12 choices", PLANNED / seconds_taken, "messages/s"
    yield "planned with 12 choices, reading each message", read.value / PLANNED, "times"


def count_parsed(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """Yield how many rows (position, time, key, body) the lines of a task are."""
    count = sum(len(found.bodies) for found in Intake(conflation).messages(batches))
    yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], ["parsed"])


def outcome(deliveries: DataFrame) -> Outcome:
    """Return the sums of deliveries (`DELIVERIES`)."""
    sums = ("messages", "length(value)", "first", "position")
    [found] = deliveries.selectExpr("count(*)", *(f"sum({one})" for one in sums)).collect()
    return Outcome(*found)


def run(frame: DataFrame) -> None:
    """Compute a frame without storing it."""
    frame.write.format("noop").mode("overwrite").save()


def seconds(work: Callable[[], object]) -> float:
    """Return how long some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
