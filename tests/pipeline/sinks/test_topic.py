"""A topic sink stages and commits each batch once, even if Spark repeats it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.pipeline.journals import Journals, Removed
from tests.support.rules import rule
from tidegate.pipeline import connection
from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.connection import gateway_at
from tidegate.pipeline.errors import GatewayRefused
from tidegate.pipeline.sinks import topic as module
from tidegate.pipeline.sinks.sink import Batch, BatchResult
from tidegate.pipeline.sinks.tasks import Report
from tidegate.pipeline.sinks.topic import (
    STAGED_AHEAD_S_MAX,
    ExistingRecords,
    Staging,
    TopicWriter,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PRODUCER = "tidegate.pipeline.s.0a"


def winners(count: int, refused: int = 0) -> pa.RecordBatch:
    rows = [
        {"file": "0\0file:/in/x", "block": 0, "position": at, "value": b"%d" % at, "messages": 2}
        for at in range(count + refused)
    ]
    for row in rows[count:]:
        row |= {"refused": "message-invalid: not JSON", "messages": 1, "value": b"\xff{"}
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SENT))


def writer_to(journals: Journals, folder: Path) -> TopicWriter:
    letters = str(folder / "dead")
    return TopicWriter(journals.address, "newest", "s", {"key": ["/a"]}, letters)


def batch(number: int, run: int = 1) -> Batch:
    return Batch(number, run, "0a")


def staged(writer: TopicWriter, batch: Batch, rows: pa.RecordBatch, attempt: int = 0) -> Report:
    """What one attempt of a task reports."""
    with gateway_at(writer.gateway) as gateway:
        staging = Staging(writer, gateway, batch, attempt)
        staging.take(rows)
        staging.end()
    return staging.report()


def write(writer: TopicWriter, batch: Batch, rows: pa.RecordBatch, attempt: int = 0) -> BatchResult:
    return writer.commit([staged(writer, batch, rows, attempt)], batch)


def test_a_batch_is_staged_in_pieces_and_published_in_one_step(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STAGE_MESSAGES_MAX", 4)
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    report = staged(writer, batch(3), winners(10))
    assert (topic.values, len(topic.stages)) == ([], 3)
    result = writer.commit([report], batch(3))
    assert topic.values == [b"%d" % at for at in range(10)]
    [publication] = topic.publications
    assert (publication.producer, publication.run, publication.sequence) == (PRODUCER, 1, 3)
    assert (result.messages, result.published, result.repeated) == (20, 10, 0)
    assert topic.stages == {}


def test_removals_are_staged_in_their_place(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STAGE_MESSAGES_MAX", 2)
    topic = journals.topic("newest")
    given = [
        (None, "deleted"),
        (b"1", None),
        (b"2", None),
        (b"3", None),
        (b"4", None),
        (None, "match"),
    ]
    rows = [
        {"key": f'["{at}"]', "value": value, "removed": removed, "messages": 1}
        for at, (value, removed) in enumerate(given)
    ]
    table = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SENT))
    result = write(writer_to(journals, tmp_path), batch(1), table)
    assert topic.values == [Removed(b'["0"]'), b"1", b"2", b"3", b"4", Removed(b'["5"]')]
    assert [type(value) for value in topic.values] == [Removed, *[bytes] * 4, Removed]
    assert result.published == 6


def test_a_stage_is_bounded_in_bytes(
    journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_BYTES_MAX", 5)
    topic = journals.topic("newest")
    staged(writer_to(journals, tmp_path), batch(0), winners(5))
    assert [len(lines) for lines in topic.stages.values()] == [2, 2, 1]


def test_a_batch_that_comes_again_is_published_once(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    assert write(writer, batch(0), winners(6)).published == 6
    # Cut into tasks differently, by another run: the number is the batch's all the same.
    again = batch(0, run=2)
    reports = [staged(writer, again, winners(3), attempt) for attempt in (0, 1)]
    result = writer.commit(reports, again)
    assert (result.published, result.repeated) == (0, 6)
    assert len(topic.values) == 6


def test_an_attempt_that_spark_did_not_take_publishes_nothing(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    reports = [staged(writer, batch(0), winners(4), attempt) for attempt in (7, 8)]
    assert len(topic.stages) == 2
    assert writer.commit(reports[1:], batch(0)).published == 4
    assert topic.values == [b"%d" % at for at in range(4)]
    assert list(topic.stages) == reports[0].names


def test_a_driver_that_was_killed_before_its_commit_leaves_nothing_behind(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    staged(writer, batch(0), winners(4))
    assert write(writer, batch(0, run=2), winners(4)).published == 4
    assert topic.values == [b"%d" % at for at in range(4)]


def test_a_driver_that_was_given_up_is_fenced(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    write(writer, batch(0, run=2), winners(1))
    with pytest.raises(GatewayRefused, match="producer-fenced"):
        write(writer, batch(1), winners(1))
    assert topic.values == [b"0"]


def test_lines_that_are_no_records_go_to_the_dead_letters(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    for attempt in range(2):
        result = write(writer_to(journals, tmp_path), batch(7), winners(1, refused=2), attempt)
    assert result.refused == 2
    [letters] = (tmp_path / "dead").iterdir()
    assert len(letters.read_bytes().splitlines()) == 2
    assert topic.values == [b"0"]


def test_the_end_follows_the_batch_of_its_number(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    writer = writer_to(journals, tmp_path)
    end = replace(batch(3), is_end=True)
    for each in (batch(3), end, end):
        write(writer, each, winners(1))
    assert [each.producer for each in topic.publications] == [PRODUCER, f"{PRODUCER}.end"]


def test_a_batch_without_rows_sends_nothing(journals: Journals, tmp_path: Path) -> None:
    topic = journals.topic("newest")
    assert write(writer_to(journals, tmp_path), batch(0), winners(0)).sent_at_s == 0
    assert (topic.stages, topic.publications) == ({}, [])


@pytest.mark.spark
def test_the_tasks_of_spark_stage_and_the_driver_commits_when_it_is_time(
    spark: SparkSession, journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = journals.topic("newest")
    rows = spark.createDataFrame(winners(40).to_pylist(), SENT).repartition(5)
    writer = writer_to(journals, tmp_path)
    waits: list[tuple[float, int, int]] = []

    def wait_until(moment_s: float) -> float:
        waits.append((moment_s, len(topic.stages), len(topic.values)))
        return 0.0

    monkeypatch.setattr(module, "wait_until", wait_until)
    result = writer.write(rows, Batch(0, 1, "0a", not_before_s=9_000.0))
    assert waits == [(9_000.0 - STAGED_AHEAD_S_MAX, 0, 0), (9_000.0, 1, 0)]
    assert (result.messages, result.published) == (80, 40)
    assert topic.values == [b"%d" % at for at in range(40)]
    assert writer.write(rows.repartition(2), batch(0)).repeated == 40
    assert len(topic.values) == 40


def test_a_sink_topic_is_created_once_and_kept_if_its_key_is_the_streams(
    journals: Journals, tmp_path: Path
) -> None:
    writer = writer_to(journals, tmp_path)
    for description in ("made", "other"):
        made = replace(writer, definition={"key": ["/a"], "description": description})
        assert made.prepare() == ["e1"]
    assert journals.topics["newest"].definition["description"] == "made"
    with pytest.raises(GatewayRefused, match=r"exists with key \['/a'\]"):
        replace(writer, definition={"key": ["/b"]}).prepare()


@rule("pipeline-13")
def test_a_first_batch_restates_the_topic_as_often_as_it_comes(
    journals: Journals, tmp_path: Path
) -> None:
    topic = journals.topic("newest")
    topic.records = {b'["0"]': (1, b"0"), b'["gone"]': (2, b"7")}
    writer = replace(writer_to(journals, tmp_path), restates=True)
    rows = [{"key": f'["{at}"]', "value": b"%d" % at, "messages": 1} for at in range(2)]
    batch_rows = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SENT))
    for run, given in ((5, [b"1", Removed(b'["gone"]')]), (6, [])):
        first = batch(0, run)
        with gateway_at(writer.gateway) as gateway:
            existing = ExistingRecords.of(gateway, "newest")
            staging = Staging(writer, gateway, first, 0, existing)
            staging.take(batch_rows)
            staging.end()
        assert writer.commit([staging.report()], first).published == len(given)
        topic.records = {b'["0"]': (1, b"0"), b'["1"]': (3, b"1")}
    assert topic.values == [b"1", Removed(b'["gone"]')]
    [publication] = topic.publications
    assert (publication.producer, publication.sequence) == (f"{PRODUCER}.begin", 5)


@rule("pipeline-14")
def test_a_topic_that_was_declared_is_not_made(journals: Journals, tmp_path: Path) -> None:
    with pytest.raises(GatewayRefused, match="no longer has topic newest"):
        replace(writer_to(journals, tmp_path), declared=True).prepare()
    assert journals.topics == {}


HAS = [
    b'{"key":["a"],"bookmark":"e-1","value":{"n":1}}\n{"key":["b"],"bookmark":"e-2","value":{"n":2}}\n',
    b'{"key":["c"],"bookmark":"e-3","value":{"n":3}}\n',
]


@rule("pipeline-13")
def test_news_is_what_is_not_there_so() -> None:
    existing = ExistingRecords(HAS)
    assert not existing.take_difference('["a"]', b'{"n":1}')
    assert existing.take_difference('["b"]', b'{"n":9}')
    assert existing.take_difference('["d"]', b'{"n":4}')
    assert list(existing.left()) == ['["c"]']


def test_a_removal_is_news_where_there_is_a_record() -> None:
    existing = ExistingRecords(HAS)
    assert existing.take_difference('["a"]', None)
    assert not existing.take_difference('["d"]', None)


def test_an_empty_topic_has_nothing_left() -> None:
    assert list(ExistingRecords([]).left()) == []
