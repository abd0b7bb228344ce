"""Conflation on Spark, compared with parsing only, Spark's own state, and polars.

`python -m bench pipeline` fails if the deliveries of polars are not the same, or the figures of the
planner are not those of a loop.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.figure import Figure, median
from bench.spark import polars_baseline
from bench.spark.polars_baseline import Outcome
from bench.spark.ticks import lines_of, recorded_day
from tests.pipeline.mixed_ticks import REDUCERS, WANTED
from tests.pipeline.naive_plan import Message, by_batch, by_key, messages
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.blocks import block_count
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.history import read_history
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.recorded import by_shards, conflate_recorded
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.planner.choices import Question, add_tallies, tally_choices
from tidegate.pipeline.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = KeySpec.of(["/tickerId", "/exchange", "/type"])
TIME = TimeField(FieldPath.parse("/ts"))
SECOND_NS = 1_000 * MILLISECOND_NS
PLANNED = 5_000_000
PLANNED_KEYS = (("a",), ("a", "b"))

ROUNDS = 5
# What a stream with everything takes: a filter, five reducers, and removals.
MIXED: dict[str, Any] = {
    "filter": Filter.parse(WANTED),
    "reduce": Reduce.parse(REDUCERS),
    "sends_removals": True,
}

Works = dict[str, Callable[[], object]]


def figures() -> Iterator[Figure]:
    """Yield the figures; nothing without the recorded ticks."""
    day = recorded_day()
    if day is None:
        return
    theirs = polars_baseline.deliveries(day)  # also warms polars up
    spark = open_session("local[2]")
    try:
        yield from _conflation(spark, day, theirs)
        yield from _planning(spark)
    finally:
        spark.stop()


def _conflation(spark: SparkSession, path: Path, theirs: Outcome) -> Iterator[Figure]:
    lines = read_history(spark, path)
    plain = Conflation(KEY, Interval(SECOND_NS, Pace.KEY), TIME)
    batch = replace(plain, interval=Interval(SECOND_NS, Pace.BATCH))
    counted = lines.mapInArrow(partial(count_parsed, conflation=plain), "parsed long")
    ours = outcome(conflate_recorded(lines, batch))
    if ours != theirs:
        raise ValueError(f"ours {ours}, those of polars {theirs}")
    yield Figure("conflated by batch: equal to those of polars", ours.rows, "rows")

    def conflated(asked: Conflation) -> Callable[[], object]:
        return lambda: run(conflate_recorded(lines, asked))

    works: Works = {
        "parsed and counted": counted.collect,
        "by key": conflated(plain),
        "by batch": conflated(batch),
        "mixed by key": conflated(replace(plain, **MIXED)),
        "mixed by batch": conflated(replace(batch, **MIXED)),
        "by shards": lambda: run(by_shards(lines, plain)),
        "polars: parsed and counted": lambda: polars_baseline.counted(path),
        "polars: by batch": lambda: polars_baseline.deliveries(path),
        "polars: tumbling": lambda: polars_baseline.tumbling(path),
    }
    taken = medians(works)
    for name, note in NOTES.items():
        yield Figure(name, theirs.messages / taken[name], "messages/s", note=note)
    for name, other, at_least in TARGET_RATIOS:
        yield Figure(f"{name}, of {other}", taken[other] / taken[name], "x", at_least=at_least)
    yield from _beside_states(spark, path, theirs.messages / taken["by key"])


NOTES = {
    "parsed and counted": "",
    "by key": "An interval of 1 s, as all.",
    "by batch": "",
    "mixed by key": "With a filter, five reducers and removals.",
    "mixed by batch": "",
    "by shards": "By key, shuffled.",
    "polars: parsed and counted": "",
    "polars: by batch": "The same deliveries as by batch.",
    "polars: tumbling": "Windows at whole seconds.",
}
TARGET_RATIOS = (
    ("parsed and counted", "polars: parsed and counted", 0.6),
    ("by key", "polars: by batch", 0.5),
    ("by batch", "polars: by batch", 0.5),
    ("mixed by key", "by key", 0.7),
    ("mixed by batch", "by batch", 0.7),
)


def _beside_states(spark: SparkSession, path: Path, rate: float) -> Iterator[Figure]:
    """Yield the figures of Spark's own state, which takes too long for rounds."""
    from bench.spark import stateful  # imports Spark, which other suites do not need

    for name, processor in (
        ("plain transformWithState", stateful.LatestOfKey),
        ("transformWithState, state once a batch", stateful.LatestOfKeyWithCare),
    ):
        theirs = stateful.stateful_rate(spark, lines_of(path), processor)
        yield Figure(f"{name}, timers of 1 s", theirs, "messages/s")
        yield Figure(f"by key, of {name}", rate / theirs, "times")


def _planning(spark: SparkSession) -> Iterator[Figure]:
    """Plan a file of five million messages: two keys, three intervals, two paces."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        path = Path(folder) / "made.ndjson"
        with path.open("wb") as file:
            file.writelines(
                b'{"a":"T%d","b":"%d","ts":%d}\n' % (n % 1_000, n % 7, n // 4)
                for n in range(PLANNED)
            )
        yield from _planned(spark, path)


def _planned(spark: SparkSession, path: Path) -> Iterator[Figure]:
    specs = tuple(KeySpec.of([f"/{name}" for name in names]) for names in PLANNED_KEYS)
    intervals = tuple(ms * MILLISECOND_NS for ms in (100, 1_000, 5_000))
    question = Question(specs, intervals, tuple(Pace), TIME, 2)
    blocks = read_history(spark, path)
    read = spark.sparkContext.accumulator(0)

    def counting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    watched = blocks.mapInArrow(counting, blocks.schema)
    answer = add_tallies(tally_choices(watched, question), question)
    times = read.value / block_count(path.name, path.stat().st_size)
    yield Figure("planned with 12 choices, reading each block of the file", times, "times")
    taken = medians({"plan": lambda: add_tallies(tally_choices(blocks, question), question)})
    rate = PLANNED / taken["plan"]
    yield Figure("planned with 12 choices", rate, "messages/s", at_least=1_000_000)
    ours = [(sent.messages, sent.bytes, sent.age_ms(50), sent.age_ms(99)) for sent in answer.sent]
    theirs = list(_counted(path, question))
    if ours != theirs:
        raise ValueError(f"planned {ours}, counted by a loop {theirs}")
    yield Figure("planned: equal to the counts of a loop", len(ours), "choices")


def _counted(path: Path, question: Question) -> Iterator[tuple[int, int, int, int]]:
    """Yield what a loop over single messages counts for each choice."""
    recorded: list[Message] = []
    before = -1
    for place, interval in question.choices():
        if place != before:  # one list at a time: it takes more memory than all else
            recorded.clear()
            with path.open("rb") as file:
                lines = (line.rstrip() for line in file)
                recorded.extend(messages(lines, PLANNED_KEYS[place], "ts"))
            before = place
        count = by_key if interval.pace is Pace.KEY else by_batch
        found = count(recorded, interval.interval_ns)
        yield len(found.sizes), sum(found.sizes), found.age_ms(50), found.age_ms(99)


def medians(works: Works) -> dict[str, float]:
    """Return the median seconds of each work; every round does each, so that all see one load."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(1 + ROUNDS):
        for name, work in works.items():
            spent = seconds(work)
            if number:  # the first round warms up
                taken[name].append(spent)
    return {name: median(found) for name, found in taken.items()}


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
