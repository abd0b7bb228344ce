"""A gateway topic as a stream of PUBLISHED rows; its positions are the order of publication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipeline.format.source import TidegateSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipeline.definitions.source import TopicSource


class TopicJournals(TidegateSource):
    """The data source under a name that is registered.

    Spark looks for formats once in a session; where the Python that looks comes up too late, none
    would be found in it any more.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tidegate-topic"


def journal_rows(spark: SparkSession, source: TopicSource, gateway: str) -> DataFrame:
    """A topic's journal as a stream (`datasource.rows.SCHEMA`)."""
    spark.dataSource.register(TopicJournals)
    reader = (
        spark.readStream.format(TopicJournals.name())
        .option("gateway", source.address or gateway)
        .option("prefix", source.prefix)
        .option("topic", source.topic)
        .option("from", source.start)
    )
    if source.rows_per_batch is not None:
        reader = reader.option("rows_per_batch", source.rows_per_batch)
    return reader.load()


def read_topic(
    spark: SparkSession, source: TopicSource, gateway: str, *, tells_keys: bool = False
) -> DataFrame:
    """The messages of a topic (`columns.rows.PUBLISHED`), which its gateway has checked.

    `tells_keys`: the topic's own keys are the records', whatever fields these have.
    """
    return journal_rows(spark, source, gateway).selectExpr(
        "'' AS file",
        "CAST(0 AS LONG) AS block",
        "offset AS position",
        "timestamp_ms AS time_ms",
        "key" if tells_keys else "IF(removed IS NULL, NULL, key) AS key",
        "CAST(value AS BINARY) AS body",
        "removed",
        "CAST(NULL AS STRING) AS refused",
    )
