"""Every source yields PUBLISHED rows, or says where the lines are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.definitions.streams_file import GOOD, written
from tests.pipeline.journals import Journals, Removed
from tests.pipeline.read_out import bodies
from tests.support.rules import rule
from tidegate.pipeline.columns.blocks import BLOCKS, PAGES, as_published
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.definitions.source import (
    FileFormat,
    FilesSource,
    KafkaSource,
    RateSource,
    RedisSource,
    Source,
    TopicSource,
)
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.operations.status import pace_of
from tidegate.pipeline.sources.source import (
    are_checked,
    jars_of,
    made,
    open_source,
    read_rate,
    read_topic,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KAFKA = KafkaSource("127.0.0.1:1", "t", "epoch", None, (), None)


@pytest.fixture
def definition(tmp_path: Path) -> StreamDefinition:
    return read_definitions(written(tmp_path, GOOD))[0]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize(
    "source",
    [
        TopicSource("t", "epoch", None),
        FilesSource("/nowhere/*.ndjson"),
        FilesSource("/nowhere/*.csv", format=FileFormat.CSV, schema=(("a", "long"),)),
        RedisSource("redis://127.0.0.1:1/0", "t", "epoch", None, 5),
        RateSource(10, keys=2, seed=1),
    ],
    ids=lambda source: source.label.partition(" ")[0],
)
def test_every_source_gives_published_rows_or_says_where_the_lines_are(
    spark: SparkSession, journals: Journals, definition: StreamDefinition, source: Source
) -> None:
    journals.topic("t", [b"{}"])
    given = replace(definition, gateway=journals.address, source=source)
    frame = open_source(spark, given)
    assert frame.isStreaming
    rows = PUBLISHED
    if isinstance(source, FilesSource):
        rows = BLOCKS
    elif isinstance(source, TopicSource | RedisSource):
        rows = PAGES
    assert frame.schema.names == arrow_schema(rows).names
    assert are_checked(given) == isinstance(source, TopicSource)


def test_only_kafka_needs_jars_and_its_one_connector_is_had_once(
    definition: StreamDefinition, tmp_path: Path
) -> None:
    assert jars_of([definition]) == []
    (tmp_path / "a.jar").touch()
    (tmp_path / "readme").touch()
    kafka = replace(definition, source=replace(KAFKA, connector=tmp_path))
    assert jars_of([definition, kafka, kafka]) == [tmp_path / "a.jar"]
    with pytest.raises(DefinitionInvalid, match="have one connector"):
        jars_of([kafka, replace(definition, source=KAFKA)])


@pytest.mark.nightly
@pytest.mark.spark
def test_a_topics_messages_are_one_piece_in_order_of_their_positions(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    journals.topic("t", [b'{"n":%d}' % at for at in range(5)])
    source = TopicSource("t", "epoch", 2, address=journals.address)
    frame = as_published(read_topic(spark, source, "http://127.0.0.1:1", tmp_path))
    assert frame.schema.names == arrow_schema(PUBLISHED).names
    query = frame.writeStream.format("memory").queryName("topic").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.sql("SELECT * FROM topic ORDER BY file, block, position").collect()
    assert [bytes(row.body) for row in rows] == [b'{"n":%d}' % at for at in range(5)]
    assert [row.position for row in rows] == [1, 2, 3, 4, 5]
    assert {row.key for row in rows} == {None}
    lags = [pace_of(dict(progress)).lag for progress in query.recentProgress]
    assert lags[:3] == [3, 1, 0]


@rule("view-10", "pipeline-5")
@pytest.mark.spark
def test_a_topic_gives_the_keys_of_its_records_if_asked_and_why_one_is_gone(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    journals.topic("t", [b"{}", Removed(b'["b"]'), Removed(b'["c"]', "expired")])
    source = TopicSource("t", "epoch", None)
    frame = as_published(read_topic(spark, source, journals.address, tmp_path, with_keys=True))
    query = frame.writeStream.format("memory").queryName("keys").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.sql("SELECT * FROM keys ORDER BY file, block, position").collect()
    assert [(row.key, row.body and bytes(row.body), row.removed) for row in rows] == [
        ('["k"]', b"{}", None),
        ('["b"]', None, "deleted"),
        ('["c"]', None, "expired"),
    ]


SOURCE = RateSource(rows_per_second=100, keys=3, seed=7)


def first_rows(spark: SparkSession, source: RateSource, count: int) -> list[str | None]:
    counted = spark.range(count).selectExpr("id AS value", "timestamp_millis(id * 10) AS timestamp")
    return bodies(made(counted, source).orderBy("position").collect())


@pytest.mark.spark
@rule("pipeline-8")
def test_what_a_row_says_is_its_numbers_doing(spark: SparkSession) -> None:
    rows = first_rows(spark, SOURCE, 100)
    assert first_rows(spark, SOURCE, 50) == rows[:50]
    assert first_rows(spark, replace(SOURCE, rows_per_second=5), 50) == rows[:50]
    records = [json.loads(row or "") for row in rows]
    others = [json.loads(row or "") for row in first_rows(spark, replace(SOURCE, seed=8), 100)]
    for field in ("symbol", "price"):
        assert [record[field] for record in others] != [record[field] for record in records]
    assert {record["symbol"] for record in records} == {"S0", "S1", "S2"}
    assert [record["sequence"] for record in records] == list(range(100))
    assert [record["ts"] for record in records] == [10 * at for at in range(100)]
    assert all(100 <= record["price"] < 110 for record in records)


@pytest.mark.nightly
@pytest.mark.spark
def test_rows_come_as_fast_as_the_source_says(spark: SparkSession) -> None:
    frame = read_rate(spark, SOURCE)
    assert frame.schema.names == arrow_schema(PUBLISHED).names
    query = frame.writeStream.format("memory").queryName("rate_rows").start()
    try:
        while spark.table("rate_rows").count() < 200:
            query.processAllAvailable()
    finally:
        query.stop()
    rows = sorted(spark.table("rate_rows").collect(), key=lambda row: row.position)
    assert [row.position for row in rows] == list(range(1, len(rows) + 1))
    times_ms = [row.time_ms for row in rows]
    assert times_ms == sorted(times_ms)
    # A hundred a second: the last of two hundred is made in the second second.
    assert 1_900 <= times_ms[199] - times_ms[0] <= 2_000
