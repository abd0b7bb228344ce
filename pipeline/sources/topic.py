"""A gateway topic as a stream of PUBLISHED rows; its positions are the order of publication."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.definitions.source import TopicSource


def read_topic(
    spark: SparkSession, source: TopicSource, gateway: str, *, tells_keys: bool = False
) -> DataFrame:
    """The messages of a topic (`columns.rows.PUBLISHED`), which its gateway has checked.

    `tells_keys`: the topic's own keys are the records', whatever fields these have.
    """
    reader = (
        spark.readStream.format("tidegate")
        .option("gateway", source.address or gateway)
        .option("prefix", source.prefix)
        .option("topic", source.topic)
        .option("from", source.start)
    )
    if source.rows_per_batch is not None:
        reader = reader.option("rows_per_batch", source.rows_per_batch)
    return reader.load().selectExpr(
        "'' AS file",
        "CAST(0 AS LONG) AS block",
        "offset AS position",
        "timestamp_ms AS time_ms",
        "key" if tells_keys else "IF(removed IS NULL, NULL, key) AS key",
        "CAST(value AS BINARY) AS body",
        "removed",
        "CAST(NULL AS STRING) AS refused",
    )
