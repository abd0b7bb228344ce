from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipeline.journals import Journals, Removed
from tests.support.rules import rule
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.operations.status import pace_of
from tidegate.pipeline.sources.topic import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_topics_messages_are_one_piece_in_order_of_their_positions(
    spark: SparkSession, journals: Journals
) -> None:
    journals.topic("t", [b'{"n":%d}' % at for at in range(5)])
    source = TopicSource("t", "epoch", 2, address=journals.address)
    frame = read_topic(spark, source, "http://127.0.0.1:1")
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
def test_a_topic_tells_the_keys_of_its_records_if_asked_and_why_one_is_gone(
    spark: SparkSession, journals: Journals
) -> None:
    journals.topic("t", [b"{}", Removed(b'["b"]'), Removed(b'["c"]', "expired")])
    source = TopicSource("t", "epoch", None)
    frame = read_topic(spark, source, journals.address, tells_keys=True)
    query = frame.writeStream.format("memory").queryName("keys").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.sql("SELECT * FROM keys ORDER BY file, block, position").collect()
    assert [(row.key, row.body and bytes(row.body), row.removed) for row in rows] == [
        ('["k"]', b"{}", None),
        ('["b"]', None, "deleted"),
        ('["c"]', None, "expired"),
    ]
