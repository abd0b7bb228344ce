"""`format("tidegate")` in a Spark that found it by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from tests.pipeline.journals import Journals, Removed
from tests.support.rules import rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

LINES = [b'{"n":%d}' % at for at in range(1, 11)]


@pytest.mark.nightly
def test_a_topic_is_read_as_a_frame(spark: SparkSession, journals: Journals) -> None:
    journals.topic("t", [*LINES, b'{"text": "\xc3\xa9", "n": 1.0e0}', Removed(b'["k"]')])
    frame = spark.read.format("tidegate").option("gateway", journals.address).option("topic", "t")
    rows = frame.load().orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(1, 13))
    assert rows[-2].value == '{"text": "é", "n": 1.0e0}'
    assert (rows[-1].bookmark, rows[-1].key) == ("e1-12", '["k"]')
    assert (rows[-1].value, rows[-1].removed) == (None, "deleted")
    sharded = frame.option("from", "e1-2").option("shards", 3).load()
    assert sharded.rdd.getNumPartitions() == 3
    assert sorted(row.offset for row in sharded.collect()) == list(range(3, 13))


@pytest.mark.nightly
def test_columns_are_not_asked_for(spark: SparkSession, journals: Journals) -> None:
    journals.topic("t", LINES)
    read = spark.read.format("tidegate").option("gateway", journals.address).option("topic", "t")
    assert read.schema(read.load().schema).load().count() == 10
    with pytest.raises(AnalysisException, match=r"columns of its own .* leave \.schema"):
        read.schema("n long").load().count()


def copy(
    spark: SparkSession, journals: Journals, checkpoint: Path, partitions: int = 0
) -> DataStreamWriter:
    read = spark.readStream.format("tidegate").option("gateway", journals.address)
    rows: DataFrame = read.option("topic", "t").option("rows_per_batch", 4).load()
    rows = rows.select("key", "value", "removed")
    if partitions:
        rows = rows.repartition(partitions)
    return (
        rows.writeStream.format("tidegate")
        .option("gateway", journals.address)
        .option("topic", "u")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )


def finish(query: DataStreamWriter) -> None:
    assert query.start().awaitTermination(60)


@rule("publish-10")
def test_a_stream_is_written_once_whatever_comes_again(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    """A batch that was committed here and not in Spark, in other partitions."""
    journals.topic("t", [*LINES, Removed(b'["k"]')])
    copied = journals.topic("u")
    finish(copy(spark, journals, tmp_path / "c"))
    assert [bytes(value) for value in copied.values] == [*LINES, b'["k"]']
    assert isinstance(copied.values[-1], Removed)
    runs = [it.run for it in copied.publications]
    assert ([it.sequence for it in copied.publications], len(set(runs))) == ([0, 1, 2], 1)
    (tmp_path / "c" / "commits" / "2").unlink()
    journals.topic("t", [b"11"])
    finish(copy(spark, journals, tmp_path / "c", partitions=3))
    assert [bytes(value) for value in copied.values] == [*LINES, b'["k"]', b"11"]
    assert copied.repeats == 1
    assert copied.publications[-1].run > runs[0]
    assert len({it.producer for it in copied.publications}) == 1


@pytest.mark.nightly
def test_a_frame_is_written_in_one_step_in_its_order(
    spark: SparkSession, journals: Journals
) -> None:
    topic = journals.topic("u")
    rows = spark.range(50, numPartitions=4).selectExpr("to_json(struct(id)) AS value")
    writing = rows.write.format("tidegate").option("gateway", journals.address).option("topic", "u")
    for count in (1, 2):
        writing.mode("append").save()
        assert len(topic.publications) == count
    assert topic.values == [b'{"id":%d}' % number for number in range(50)] * 2


@pytest.mark.nightly
def test_rows_that_cannot_be_written_are_an_error_in_words(
    spark: SparkSession, journals: Journals
) -> None:
    journals.topic("u")
    to = spark.range(3).write.format("tidegate").option("gateway", journals.address)
    with pytest.raises(Exception, match="not column id"):
        to.option("topic", "u").mode("append").save()
    values = spark.createDataFrame([("{",)], "value string").write.format("tidegate")
    with pytest.raises(Exception, match="a value is not JSON"):
        values.option("gateway", journals.address).option("topic", "u").mode("append").save()
    assert journals.topics["u"].values == []
