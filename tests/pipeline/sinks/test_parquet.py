"""A Parquet sink writes each batch once, even if Spark repeats it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.pipeline.sinks.unfinished_files import BATCH, ROWS, drafted
from tests.support.rules import rule
from tidegate.pipeline.columns.rows import SENT
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import CheckpointUnusable, DefinitionInvalid, StreamFailed
from tidegate.pipeline.operations.status import Totals
from tidegate.pipeline.sinks import parquet as module
from tidegate.pipeline.sinks.parquet import COLUMNS, ParquetWriter
from tidegate.pipeline.sinks.sink import Batch, BatchResult
from tidegate.pipeline.sinks.tasks import Report
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TOML = """\
[pipeline.s]
key = ["/k"]
interval = "1s"
files_per_batch = 1
source = {kind = "files", path = "in/*.csv"}
sink = {kind = "parquet", path = "out"}
"""


def writer_to(folder: Path) -> ParquetWriter:
    return ParquetWriter(str(folder), "s", str(folder / "dead"))


def batch(number: int, run: int = 3) -> Batch:
    return Batch(number, run, "0a1b2c3d-4e5f")


def written(folder: Path, rows: list[dict[str, object]], attempt: int, of: Batch = BATCH) -> Report:
    return drafted(folder, rows, attempt, of).report()


def seen(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.spark
def test_a_batch_that_is_early_waits_which_is_no_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next one would be held open for less than it could be."""
    waits = {42.0: 7.0}
    monkeypatch.setattr(module, "wait_until", lambda moment_s: waits.pop(moment_s))
    early = replace(batch(1), not_before_s=42.0)
    writer = writer_to(tmp_path)
    writer.prepare()
    begun_s = time.monotonic()
    result = writer.write(spark.createDataFrame([], SENT), early)
    assert (result.waited_s, waits) == (7.0, {})
    assert begun_s < result.ready_at_s < time.monotonic()


def test_a_batch_is_there_once_however_often_it_comes(tmp_path: Path) -> None:
    writer = writer_to(tmp_path)
    writer.prepare()
    first = writer.finish([written(tmp_path, ROWS[:2], 0)], batch(7))
    assert (first.messages, first.published, first.repeated, first.refused) == (5, 2, 0, 0)
    assert seen(tmp_path) == ["s-0a1b2c3d-000000007.parquet"]
    again = writer.finish([written(tmp_path, ROWS[:2], 1)], batch(7, run=4))
    assert (again.messages, again.published, again.repeated) == (5, 0, 2)
    writer.finish([written(tmp_path, ROWS[:1], 2)], batch(8))
    assert pq.read_table(tmp_path).column("value").to_pylist() == ['{"k":"a"}', None, '{"k":"a"}']


@rule("pipeline-8")
def test_rows_of_an_end_stand_between_its_batch_and_the_next(tmp_path: Path) -> None:
    """By `batch` and `row`, and by the names of files; also where the end comes again."""
    writer = writer_to(tmp_path)
    batches = [batch(6), replace(batch(6), is_end=True), batch(7)]
    pieces = [ROWS[:2], ROWS[:1], ROWS[:1]]
    for attempt in range(2):
        for each, piece in zip(batches, pieces, strict=True):
            result = writer.finish([written(tmp_path, piece, attempt, each)], each)
            assert (result.published, result.repeated)[attempt] == len(piece)
    files = [writer.path(each).name for each in batches]
    assert [name for name in seen(tmp_path) if not name.startswith(".")] == files
    places = [
        (row["batch"], row["row"])
        for name in files
        for row in pq.read_table(tmp_path / name).to_pylist()
    ]
    assert len(places) == len(set(places)) == 4
    assert places == sorted(places)


def test_what_an_attempt_left_behind_goes_with_its_batch(tmp_path: Path) -> None:
    writer = writer_to(tmp_path)
    left = tmp_path / f".{writer.path(batch(7)).stem}.2.5"
    other = tmp_path / f".{writer.path(batch(8)).stem}.2.6"
    for path in (left, other):
        path.touch()
    writer.finish([written(tmp_path, ROWS[:2], 0)], batch(7))
    assert (left.exists(), other.exists()) == (False, True)


@rule("pipeline-8")
def test_a_batch_with_other_rows_is_not_taken_for_the_one_that_is_there(
    tmp_path: Path,
) -> None:
    writer = writer_to(tmp_path)
    writer.finish([written(tmp_path, ROWS[:2], 0)], batch(7))
    with pytest.raises(CheckpointUnusable, match="the checkpoint is older than the folder"):
        writer.finish([written(tmp_path, [ROWS[0] | {"messages": 5}, ROWS[1]], 1)], batch(7))


def test_a_batch_without_rows_is_no_file(tmp_path: Path) -> None:
    assert writer_to(tmp_path).finish([], batch(7)) == BatchResult()
    assert writer_to(tmp_path).finish([Report(1, 0, 1, [])], batch(7)) == BatchResult(1, 0, 0, 1)
    assert seen(tmp_path) == []


def test_a_folder_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(DefinitionInvalid, match="taken: File exists"):
        writer_to(tmp_path / "taken").prepare()
    with pytest.raises(StreamFailed, match="is not the same folder on all nodes"):
        writer_to(tmp_path).finish([Report(1, 1, 0, [str(tmp_path / ".gone")])], batch(7))


@pytest.mark.spark
@pytest.mark.nightly
def test_the_rows_of_a_frame_stand_in_order_and_plain_spark_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = writer_to(tmp_path / "out")
    writer.prepare()
    rows = [
        {"key": f"[{at}]", "file": "", "block": 0, "position": at, "value": b"{}", "messages": 2}
        for at in range(50)
    ]
    rows.append(rows[0] | {"refused": "no", "key": None})
    frame = spark.createDataFrame(rows[::-1], SENT).repartition(4)
    shown = writer.write(frame, batch(0))
    assert (shown.messages, shown.published, shown.refused) == (102, 50, 1)
    assert writer.write(frame, batch(0)).repeated == 50
    read = spark.read.parquet(str(tmp_path / "out")).orderBy("batch", "row").collect()
    assert [row.position for row in read] == list(range(50))
    assert {(row.batch, row.value) for row in read} == {(0, "{}")}
    nothing = writer.write(frame.where("key = 'none'"), batch(1))
    assert replace(nothing, ready_at_s=0.0) == BatchResult()


@pytest.mark.spark
@pytest.mark.nightly
def test_a_stream_that_is_run_again_from_its_checkpoint_adds_nothing_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "s.toml"
    path.write_text(TOML)
    [definition] = read_definitions(path)
    for at in range(2):
        lines = [f"{k},{n}" for n in range(5) for k in ("a", "b")]
        (tmp_path / "in" / f"{at}.csv").write_text("\n".join(["k,n", *lines, f"c,{at}", "broken"]))

    def ran() -> Totals:
        stream = Stream(definition)
        with Checkpoint(definition) as checkpoint:
            stream.start(spark, checkpoint, available_now=True)
            assert stream.query is not None
            stream.query.awaitTermination()
        return stream.totals

    assert ran() == Totals(2, 24, 6, 0, 2)
    (definition.checkpoint / "spark" / "commits" / "1").unlink()
    assert ran() == Totals(1, 12, 0, 3, 1)
    read = spark.read.parquet(str(tmp_path / "out")).orderBy("batch", "row").collect()
    assert [row.value for row in read] == [
        '{"k":"a","n":"4"}',
        '{"k":"b","n":"4"}',
        '{"k":"c","n":"0"}',
        '{"k":"a","n":"4"}',
        '{"k":"b","n":"4"}',
        '{"k":"c","n":"1"}',
    ]
    first = read[0].position
    assert [(row.key, row.messages, row.position - first) for row in read[:3]] == [
        ('["a"]', 5, 0),
        ('["b"]', 5, 1),
        ('["c"]', 1, 2),
    ]


def test_a_row_has_what_was_sent_and_where_it_comes_from(tmp_path: Path) -> None:
    report = drafted(tmp_path, ROWS).report()
    unfinished = str(tmp_path / ".s-q-7.3.0")
    assert report == Report(6, 2, 1, [unfinished])
    table = pq.ParquetFile(unfinished).read()
    assert table.schema.equals(COLUMNS)
    first, second = table.to_pylist()
    assert first == {
        "batch": 7,
        "row": 1,
        "key": '["a"]',
        "value": '{"k":"a"}',
        "removed": None,
        "messages": 4,
        "first_ms": 17,
        "due_ns": 18_000_000,
        "file": "file:/in/x",
        "block": 3,
        "position": 9,
    }
    shown = {name: second[name] for name in ("row", "key", "value", "removed", "file")}
    assert shown == {"row": 2, "key": '["b"]', "value": None, "removed": "deleted", "file": None}
    assert (tmp_path / "dead" / "batch-000000007.ndjson").exists()


def test_readers_pass_over_a_draft(tmp_path: Path) -> None:
    for attempt in range(2):
        drafted(tmp_path, ROWS[:2], attempt)
    assert pq.read_table(tmp_path).num_rows == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_to_write_is_no_file(tmp_path: Path) -> None:
    assert drafted(tmp_path, ROWS[2:]).report() == Report(1, 0, 1, [])
    assert [path.name for path in tmp_path.iterdir()] == ["dead"]
