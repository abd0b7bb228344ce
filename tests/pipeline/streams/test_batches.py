"""Spark delivers what the engine does, wherever the messages are cut into batches."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from tests.pipeline.columns.test_conflation import (
    REDUCERS,
    REMOVED,
    WANTED,
    conflation,
    merger_of,
)
from tests.pipeline.columns.test_shard import timed
from tests.pipeline.engine_deliveries import (
    Delivered,
    Recorded,
    batch_deliveries,
    delivered,
)
from tests.pipeline.event_time import Timed, event_deliveries
from tests.pipeline.journals import Journals
from tests.pipeline.merger import MERGER
from tests.pipeline.naive_newest import newest_by_key
from tests.support.rules import rule
from tidegate.pipeline.columns.intake import combine
from tidegate.pipeline.columns.rows import DELIVERIES, PUBLISHED, arrow_schema
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import CheckpointUnusable, DefinitionInvalid, from_spark
from tidegate.pipeline.intervals import Pace
from tidegate.pipeline.sinks.sink import Batch, BatchResult
from tidegate.pipeline.streams import batches
from tidegate.pipeline.streams.batches import (
    ConflatedBatches,
    PlanKind,
    batch_time_ms,
    plan_latest,
    plan_of,
)
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MESSAGES = 400
FILES = 4
INTERVAL_MS = 40
LATENESS_MS = 75
OOF, MERGE = "oof = true", f'merge = "{MERGER}"'


@dataclass
class Collected:
    """A sink that keeps the rows of each batch; a repeated batch has to have the same."""

    rows: dict[str, list[Delivered]] = field(default_factory=dict)

    def prepare(self) -> str:
        """Nothing to make."""
        return ""

    def write(self, rows: DataFrame, batch: Batch) -> BatchResult:
        found = [delivered(row.asDict()) for row in rows.collect()]
        assert self.rows.setdefault(batch.label, found) == found
        return BatchResult(published=len(found))


def shared_case() -> list[Timed]:
    """Values 0 to 9 of five keys with removals between, in uneven steps of time, some late."""
    steps = (0, 1, 7, 19, -30, 41, 40, -120)
    return timed(
        [
            ("abcde"[n * 7 % 5], None if n % 11 == 3 else n * 3 % 10, steps[n * n % 7 + n % 2])
            for n in range(MESSAGES)
        ]
    )


def write_batches(folder: Path, messages: list[Timed], numbers: range) -> None:
    """Write PUBLISHED rows as files, a file for each batch."""
    folder.mkdir(exist_ok=True)
    size = MESSAGES // FILES
    for number in numbers:
        rows = [
            {"file": f"f{number}", "block": 0, "position": one.position, "body": one.body}
            | {"time_ms": one.position, "key": None if one.body else one.key}
            | {"removed": None if one.body else one.removed}
            for one in messages[number * size : (number + 1) * size]
        ]
        table = pa.Table.from_pylist(rows, schema=arrow_schema(PUBLISHED))
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # their order


class FileStream:
    """A stream over files of PUBLISHED rows, and all that it has sent."""

    def __init__(
        self, spark: SparkSession, folder: Path, asked: str, patch: pytest.MonkeyPatch
    ) -> None:
        self.sink = Collected()
        self._spark = spark
        path = folder / "s.toml"
        path.write_text(
            f'[pipeline.s]\nkey = ["/k"]\ninterval = "{INTERVAL_MS}ms"\n{asked}\n'
            'source = {kind = "files", path = "in"}\nsink = {topic = "sent"}\n'
        )
        [self.definition] = read_definitions(path)
        patch.setattr(batches, "open_source", partial(self._open, folder / "in"))

    def _open(self, folder: Path, spark: SparkSession, definition: Any) -> DataFrame:
        reader = spark.readStream.schema(PUBLISHED).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))

    def run(self, *, to_the_end: bool = True) -> Stream:
        """Read what is there."""
        stream = Stream(self.definition, self.sink)
        with Checkpoint(self.definition) as checkpoint:
            stream.start(self._spark, checkpoint, available_now=True)
            assert stream.query is not None
            with suppress(StreamingQueryException):  # the caller asks the query
                stream.query.awaitTermination()
            if to_the_end:
                stream.end()
        return stream

    @property
    def sent(self) -> list[Delivered]:
        """All rows, in an order of their own."""
        return sorted((row for rows in self.sink.rows.values() for row in rows), key=str)


def stream_lines(pace: Pace, *more: str) -> str:
    reduce = f"reduce = {json.dumps(REDUCERS[1:-1].split(','))}"
    lines = [] if MERGE in more else [reduce]
    return "\n".join([f'pace = "{pace}"', f'filter = "{WANTED}"', *lines, *more])


def options(pace: Pace, *more: str) -> str:
    interval = f"conflation={INTERVAL_MS}ms,pace={pace}"
    reduce = [] if MERGE in more else [f"reduce={REDUCERS}"]
    return ",".join([interval, *reduce, *(["oof"] if OOF in more else [])])


EVENT = f'oof = true\ntime = {{field = "/t", watermark = "{LATENESS_MS}ms"}}'


@pytest.mark.spark
@rule("pipeline-1", "pipeline-3", "pipeline-4", "pipeline-5")
@pytest.mark.parametrize("pace", [Pace.KEY, Pace.BATCH])
@pytest.mark.nightly
def test_event_time_whatever_the_batches_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: Pace
) -> None:
    messages = shared_case()
    files = FileStream(spark, tmp_path, stream_lines(pace, EVENT), monkeypatch)
    write_batches(tmp_path / "in", messages, range(FILES))
    files.run()
    expected = event_deliveries(messages, LATENESS_MS, options(pace, OOF), WANTED)
    assert {row.removed for row in expected} == {None, *REMOVED}
    assert files.sent == sorted(expected, key=str)
    assert len(files.sink.rows) == FILES + 1
    assert all(files.sink.rows.values())
    rerun = files.run()
    assert rerun.totals.batches == 0  # a stream is ended once


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-1", "pipeline-3", "pipeline-4", "pipeline-5")
@pytest.mark.parametrize(
    ("pace", "more", "plan"),
    [
        (Pace.BATCH, (), PlanKind.LATEST),
        (Pace.BATCH, (OOF,), PlanKind.HELD),
        (Pace.KEY, (OOF,), PlanKind.HELD),
        (Pace.BATCH, (MERGE,), PlanKind.HELD),
    ],
)
def test_processing_time_by_the_log_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    pace: Pace, more: tuple[str, ...], plan: PlanKind,
) -> None:  # fmt: skip
    messages = shared_case()
    files = FileStream(spark, tmp_path, stream_lines(pace, *more), monkeypatch)
    write_batches(tmp_path / "in", messages, range(FILES))
    stream = files.run()
    assert ConflatedBatches(files.definition).plan is plan
    size = MESSAGES // FILES
    log = files.definition.checkpoint / "spark"
    parts = [
        (now, [Recorded(one.position, now, *one[2:]) for one in messages[low:][:size]])
        for low, now in ((n * size, batch_time_ms(log, n)) for n in range(FILES))
    ]
    expected = batch_deliveries(
        parts, options(pace, *more), WANTED, batch_is_interval=pace is Pace.BATCH,
        merger=merger_of(MERGER if MERGE in more else ""),
    )  # fmt: skip
    found = [[row._replace(due_ns=0) for row in rows] for rows in files.sink.rows.values()]
    if plan is PlanKind.LATEST:
        expected = expected[:-1]
    if MERGE in more:
        keys = [row.key for row in found[0]]
        assert len(keys) > len(set(keys)), "the merger keeps some messages apart"
        assert (stream.merger_failures or 0) > 0
    assert [sorted(rows, key=str) for rows in found] == [sorted(rows, key=str) for rows in expected]


@rule("pipeline-1", "pipeline-3", "pipeline-4", "pipeline-5")
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_oof_by_another_key_than_that_of_the_topic_is_refused(
    tmp_path: Path, journals: Journals, is_elsewhere: bool
) -> None:
    spark = cast("SparkSession", None)  # it is refused before Spark is asked
    journals.topic("raw", key=["/k", "/x"])
    path = tmp_path / "s.toml"
    own = "http://127.0.0.1:1" if is_elsewhere else journals.address
    address = f', address = "{journals.address}/"' if is_elsewhere else ""
    path.write_text(
        f'gateway = "{own}"\n[pipeline.s]\nkey = ["/k"]\ninterval = "1s"\noof = true\n'
        f'source = {{kind = "tidegate", topic = "raw"{address}}}\nsink = {{topic = "sent"}}\n'
    )
    [definition] = read_definitions(path)
    with pytest.raises(DefinitionInvalid, match=r"s: oof needs the key of topic raw, which is"):
        ConflatedBatches(definition).open(spark)


@pytest.mark.spark
@rule("pipeline-1", "pipeline-3", "pipeline-4", "pipeline-5")
def test_an_interrupted_end_is_continued_and_a_loss_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = shared_case()
    files = FileStream(spark, tmp_path, stream_lines(Pace.KEY, EVENT), monkeypatch)
    write_batches(tmp_path / "in", messages, range(2))
    files.run()
    before = dict(files.sink.rows)
    # As after a kill between the sink's commit and the note `ended`.
    (files.definition.checkpoint / "held" / "ended").unlink()
    # A batch that was written and not noted comes again, from what its predecessor held.
    (files.definition.checkpoint / "spark" / "commits" / "1").unlink()
    write_batches(tmp_path / "in", messages, range(2, FILES))
    files.run(to_the_end=False)
    assert list(files.sink.rows) == [*before, "000000002", "000000003"]
    held = files.definition.checkpoint / "held"
    assert sorted(path.name for path in held.glob("0*")) == ["000000002", "000000003"]
    for table in (held / "000000003").iterdir():
        table.unlink()
    write_batches(tmp_path / "in", messages, range(FILES, FILES + 1))
    failed = files.run(to_the_end=False)
    assert failed.query is not None
    error = from_spark("s", str(failed.query.exception()))
    assert isinstance(error, CheckpointUnusable)
    assert "held/000000003/0000.arrow is missing or damaged" in str(error)


@pytest.mark.spark
@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_spark_agrees_with_one_pass_and_shuffles_only_the_newest_of_each_key(
    spark: SparkSession, tasks: int
) -> None:
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
    merged = plan_latest(frame, asked, tasks)
    assert merged.rdd.getNumPartitions() == tasks
    rows = merged.collect()
    published = [bytes(row.body) for row in frame.orderBy("position").collect()]
    kept = [bytes(row.value) for row in rows if row.refused is None]
    assert newest_by_key(kept, "k") == newest_by_key(published, "k")
    assert len(kept) == 7
    assert len([row for row in rows if row.refused]) == 30
    assert sum(row.messages for row in rows) == 3000
    shuffled = frame.mapInArrow(partial(combine, conflation=asked), DELIVERIES).count()
    assert shuffled == 3 * 7 + 30


@pytest.mark.parametrize(
    ("pace", "oof", "is_timed", "plan"),
    [
        (Pace.BATCH, False, False, PlanKind.LATEST),
        (Pace.BATCH, True, False, PlanKind.HELD),
        (Pace.KEY, False, False, PlanKind.HELD),
        (Pace.BATCH, False, True, PlanKind.TIMED),
    ],
)
def test_a_running_stream_holds_only_what_it_must(
    pace: Pace, oof: bool, is_timed: bool, plan: PlanKind
) -> None:
    assert plan_of(conflation(pace, "", "", oof=oof)[0], is_timed=is_timed) is plan


def test_a_merger_needs_the_plan_that_holds_messages() -> None:
    asked = conflation(Pace.BATCH, "", MERGER, oof=False)[0]
    assert plan_of(asked, is_timed=False) is PlanKind.HELD
