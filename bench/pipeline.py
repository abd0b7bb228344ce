"""Conflation on Spark against reading the same parsed rows, and against Spark's own state."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import peer
from dev import ROOT
from keys.path import FieldPath
from keys.spec import KeySpec
from pipeline.columns.conflation import Conflation
from pipeline.columns.history import read_history
from pipeline.columns.intake import Intake
from pipeline.columns.intervals import MILLISECOND_NS, Interval, Pace
from pipeline.columns.times import TimeField
from pipeline.planner.planning import Question, answered, planned
from pipeline.session import open_session
from pipeline.streams.plans import by_shards, plan_recorded, recorded_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = "ticks-20131008-day.ndjson.gz"
KEY = KeySpec.of(["/tickerId", "/exchange", "/type"])
TIME = TimeField(FieldPath.parse("/ts"))
SECOND_NS = 1_000 * MILLISECOND_NS
STATEFUL_LINES = 50_000
PLANNED = 5_000_000

_EXECUTION = "org.apache.spark.sql.execution.streaming"
STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": f"{_EXECUTION}.state.RocksDBStateStoreProvider",
    # The session's own choice suits checkpoints without state; RocksDB's files want Hadoop's.
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_EXECUTION}.checkpointing.FileContextBasedCheckpointFileManager"
    ),
}

Figure = tuple[str, float, str]


def figures() -> Iterator[Figure]:
    """Name, value, unit; nothing where there are no recorded ticks."""
    folder = Path(os.environ.get("TIDEGATE_TICKS") or ROOT.parent / "shared" / "data")
    if not (folder / DAY).exists():
        return
    yield from _peer(folder / DAY)
    spark = open_session("local[2]")
    try:
        yield from _conflation(spark, folder / DAY)
        yield from _planning(spark)
    finally:
        spark.stop()


def _conflation(spark: SparkSession, path: Path) -> Iterator[Figure]:
    lines = recorded_lines(read_history(spark, path))
    by_key = Conflation(KEY, Interval(SECOND_NS, Pace.KEY), TIME)
    counted = lines.mapInArrow(partial(count_parsed, conflation=by_key), "parsed long")
    messages = counted.groupBy().sum().collect()[0][0]  # warms the workers up, too
    parsed_s = seconds(counted.collect)
    yield "rows parsed and counted", messages / parsed_s, "messages/s"
    deliveries = plan_recorded(lines, by_key).frame
    conflated_s = seconds(lambda: run(deliveries))
    yield "conflated by key, 1 s", messages / conflated_s, "messages/s"
    yield "conflated by key, of parsed and counted", 100 * parsed_s / conflated_s, "percent"
    by_batch = Conflation(KEY, Interval(SECOND_NS, Pace.BATCH), TIME)
    batch_s = seconds(lambda: run(plan_recorded(lines, by_batch).frame))
    yield "conflated by batch, 1 s", messages / batch_s, "messages/s"
    shards_s = seconds(lambda: run(by_shards(lines, by_key)))
    yield "conflated by key, shuffled by shards", messages / shards_s, "messages/s"
    stateful = stateful_rate(spark, path)
    yield "plain transformWithState, timers of 1 s", stateful, "messages/s"
    yield "conflated by key, of transformWithState", messages / conflated_s / stateful, "times"


def _peer(path: Path) -> Iterator[Figure]:
    """What polars does with the same file, by itself."""
    messages = peer.counted(path)  # warms up, too
    yield "polars: parsed and counted", messages / seconds(lambda: peer.counted(path)), "messages/s"
    tumbling_s = seconds(lambda: peer.tumbling(path))
    yield "polars: tumbling windows of 1 s", messages / tumbling_s, "messages/s"


def _planning(spark: SparkSession) -> Iterator[Figure]:
    """Five million messages made by Spark, 1,000 keys, three intervals, two keys, two paces."""
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

    def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    watched = lines.mapInArrow(noted, lines.schema)
    seconds_taken = seconds(lambda: answered(planned(watched, question), question))
    yield "planned with 12 choices", PLANNED / seconds_taken, "messages/s"
    yield "planned with 12 choices, reading each message", read.value / PLANNED, "times"


def count_parsed(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """How many rows (position, time, key, body) a task's lines are."""
    count = sum(len(found.bodies) for found in Intake(conflation).messages(batches))
    yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], ["parsed"])


def stateful_rate(spark: SparkSession, path: Path) -> float:
    """Messages a second of Spark's own way: a value state and a timer for each key."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    from bench.stateful import OUTPUT, LatestOfKey

    for name, setting in STATE_STORE.items():
        spark.conf.set(name, setting)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        (Path(folder) / "in").mkdir()
        with gzip.open(path) as ticks:
            Path(folder, "in", "ticks.ndjson").write_bytes(b"".join(islice(ticks, STATEFUL_LINES)))
        fields = "tickerId string, exchange string, type string, ts long"
        query = (
            spark.readStream.format("text")
            .load(f"{folder}/in")
            .select("value", F.from_json("value", fields).alias("tick"))
            .selectExpr(
                "concat_ws(',', tick.tickerId, tick.exchange, tick.type) AS key",
                "timestamp_millis(tick.ts) AS time",
                "tick.ts AS ts",
                "value",
            )
            .withWatermark("time", "0 seconds")
            .groupBy("key")
            .transformWithState(LatestOfKey(), OUTPUT, "Append", "EventTime")
            .writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batch: dict[str, Any] = next(p for p in query.recentProgress if p["numInputRows"])
        rows, took_ms = int(batch["numInputRows"]), int(batch["durationMs"]["addBatch"])
        return rows / took_ms * 1_000


def run(frame: DataFrame) -> None:
    """Work a frame off, keeping nothing."""
    frame.write.format("noop").mode("overwrite").save()


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
