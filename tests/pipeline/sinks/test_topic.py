from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pipeline.errors import GatewayRefused
from pipeline.gateway import Gateway
from pipeline.sinks import topic as sink
from pipeline.sinks.topic import Receipt, Report, Staging, TopicWriter, require_sink
from pipeline.streams.latest import ARROW_ROWS, ROWS
from tests.pipeline.journals import Journals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCER = "tidegate.pipeline.s.0a"


def winners(count: int, refused: int = 0) -> pa.RecordBatch:
    rows = [
        {"part": "0\0file:/in/x.ndjson\0" + "0", "row": at, "line": b"%d" % at, "messages": 2}
        for at in range(count + refused)
    ]
    for row in rows[count:]:
        row |= {"reason": "message-invalid: not JSON", "messages": 1, "line": b"\xff{"}
    return pa.RecordBatch.from_pylist(rows, schema=ARROW_ROWS)


def writer_to(journals: Journals, folder: Path, run: int = 1) -> TopicWriter:
    return TopicWriter(journals.address, "newest", PRODUCER, run, str(folder / "dead"))


def staged(writer: TopicWriter, batch_id: int, rows: pa.RecordBatch, attempt: int = 0) -> Report:
    """What one attempt of a task reports."""
    with Gateway(writer.gateway) as gateway:
        staging = Staging(writer, gateway, batch_id, attempt)
        staging.take(rows)
        staging.end()
    return staging.report()


def write(writer: TopicWriter, batch_id: int, rows: pa.RecordBatch, attempt: int = 0) -> Receipt:
    return writer.commit([staged(writer, batch_id, rows, attempt)], batch_id)


def test_a_batch_is_staged_in_pieces_and_published_in_one_step(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "STAGE_MESSAGES_MAX", 4)
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    report = staged(writer, 3, winners(10))
    assert (topic.values, len(topic.stages)) == ([], 3)
    receipt = writer.commit([report], 3)
    assert topic.values == [b"%d" % at for at in range(10)]
    [publication] = topic.publications
    assert (publication.producer, publication.run, publication.sequence) == (PRODUCER, 1, 3)
    assert (receipt.messages, receipt.published, receipt.repeated) == (20, 10, 0)
    assert topic.stages == {}


def test_a_stage_is_bounded_in_bytes(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "STAGE_BYTES_MAX", 5)
    topic = journals.topic("newest")
    staged(writer_to(journals, tmp_path), 0, winners(5))
    assert [len(lines) for lines in topic.stages.values()] == [2, 2, 1]


def test_a_batch_that_comes_again_is_published_once(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    assert write(writer, 0, winners(6)).published == 6
    # Cut into tasks differently, by another run: the number is the batch's all the same.
    again = writer_to(journals, tmp_path, run=2)
    reports = [staged(again, 0, winners(3), attempt) for attempt in (0, 1)]
    receipt = again.commit(reports, 0)
    assert (receipt.published, receipt.repeated) == (0, 6)
    assert len(topic.values) == 6
    assert topic.stages == {}


def test_an_attempt_that_spark_did_not_take_publishes_nothing(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    reports = [staged(writer, 0, winners(4), attempt) for attempt in (7, 8)]
    assert len(topic.stages) == 2
    assert writer.commit(reports[1:], 0).published == 4
    assert topic.values == [b"%d" % at for at in range(4)]
    assert list(topic.stages) == reports[0].stages


def test_a_driver_that_was_killed_before_its_commit_leaves_nothing_behind(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    staged(writer_to(journals, tmp_path), 0, winners(4))
    assert write(writer_to(journals, tmp_path, run=2), 0, winners(4)).published == 4
    assert topic.values == [b"%d" % at for at in range(4)]


def test_a_driver_that_was_given_up_is_fenced(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    old, new = writer_to(journals, tmp_path), writer_to(journals, tmp_path, run=2)
    write(new, 0, winners(1))
    with pytest.raises(GatewayRefused, match="producer-fenced"):
        write(old, 1, winners(1))
    assert topic.values == [b"0"]


def test_lines_that_are_no_records_are_written_down_once(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    for attempt in range(2):
        receipt = write(writer_to(journals, tmp_path), 7, winners(1, refused=2), attempt)
    assert receipt.refused == 2
    [letters] = (tmp_path / "dead").iterdir()
    assert letters.name == "batch-000000007.ndjson"
    assert [json.loads(line) for line in letters.read_bytes().splitlines()] == [
        {"reason": "message-invalid: not JSON", "file": "file:/in/x.ndjson", "row": at}
        | {"line": "\\xff{"}
        for at in (1, 2)
    ]
    assert topic.values == [b"0"]


def test_a_batch_without_rows_sends_nothing(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    assert write(writer_to(journals, tmp_path), 0, winners(0)).sent_at_s == 0
    assert (topic.stages, topic.publications) == ({}, [])


@pytest.mark.spark
def test_the_tasks_of_spark_stage_and_the_driver_commits_when_it_is_time(
    spark: SparkSession, journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = journals.topic("newest")
    rows = spark.createDataFrame(winners(40).to_pylist(), ROWS).repartition(5)
    writer = writer_to(journals, tmp_path)
    not_before_s = time.monotonic() + 0.5
    receipt = writer.write(rows, 0, not_before_s)
    assert receipt.sent_at_s >= not_before_s
    assert (receipt.messages, receipt.published) == (80, 40)
    assert topic.values == [b"%d" % at for at in range(40)]
    assert writer.write(rows.repartition(2), 0).repeated == 40
    assert len(topic.values) == 40


def test_a_sink_topic_is_created_once_and_kept_if_its_key_is_the_streams(
    journals: Journals,
) -> None:
    with Gateway(journals.address) as gateway:
        require_sink(gateway, "newest", {"key": ["/a"], "description": "made"})
        require_sink(gateway, "newest", {"key": ["/a"], "description": "other"})
        assert journals.topics["newest"].definition["description"] == "made"
        with pytest.raises(GatewayRefused, match=r"exists with key \['/a'\]"):
            require_sink(gateway, "newest", {"key": ["/b"]})
