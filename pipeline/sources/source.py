"""The source of a definition, opened as a stream of PUBLISHED rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.pipeline.definitions.external import FilesSource, KafkaSource, RateSource, RedisSource
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.sources.files import read_files
from tidegate.pipeline.sources.kafka import connector_jars, read_kafka
from tidegate.pipeline.sources.topic import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipeline.definitions.stream import StreamDefinition


# Made rows for trying out, as a stream of PUBLISHED rows: what a row says is its number's doing.
#
#     {"symbol":"S7","sequence":1234,"price":103.41,"ts":1795000000000}
#
# Spark's own `rate` counts them; a checkpoint knows when it began, and what was due in a pause
# comes
# after it.


def read_rate(spark: SparkSession, source: RateSource) -> DataFrame:
    """Rows (`columns.rows.PUBLISHED`) as fast as the source says."""
    reader = spark.readStream.format("rate").option("rowsPerSecond", source.rows_per_second)
    return made(reader.load(), source)


def made(counted: DataFrame, source: RateSource) -> DataFrame:
    """Rows of a counter, columns `value` and `timestamp`; the same for the same source."""
    return counted.selectExpr(
        "'rate' AS file",
        "CAST(0 AS LONG) AS block",
        "value + 1 AS position",
        "unix_millis(timestamp) AS time_ms",
        "CAST(NULL AS STRING) AS key",
        f"""CAST(to_json(named_struct(
            'symbol', concat('S', pmod(xxhash64(value, {source.seed}L), {source.keys}L)),
            'sequence', value,
            'price', 100 + pmod(xxhash64({source.seed}L, value), 1000L) / 100,
            'ts', unix_millis(timestamp)
        )) AS BINARY) AS body""",
        "CAST(NULL AS STRING) AS removed",
        "CAST(NULL AS STRING) AS refused",
    )


def jars_of(definitions: Iterable[StreamDefinition]) -> list[Path]:
    """What Spark needs besides its own jars for the sources of some streams; most need nothing.

    Raises:
        DefinitionInvalid: they name different connectors; one Spark has one.
        SparkUnavailable: it cannot be had.
    """
    sources = [source for each in definitions for source in each.sources]
    kafka = {each.connector: each for each in sources if isinstance(each, KafkaSource)}
    if len(kafka) > 1:
        raise DefinitionInvalid("the Kafka sources of a file have one connector, not several")
    return [jar for source in kafka.values() for jar in connector_jars(source)]


def open_source(spark: SparkSession, definition: StreamDefinition) -> DataFrame:
    """The messages of a definition's source (`columns.rows.PUBLISHED`).

    Where the definition has no key a topic's messages tell theirs.

    Raises:
        PipelineError: the source is not as the definition says.
    """
    match definition.source:
        case TopicSource() as source:
            return read_topic(spark, source, definition.gateway, tells_keys=not definition.key)
        case FilesSource() as source:
            return read_files(spark, source)
        case KafkaSource() as source:
            return read_kafka(spark, source, definition.key)
        case RateSource() as source:
            return read_rate(spark, source)
        case RedisSource() as source:
            # Its module imports Spark, which the command line does without for as long as it can.
            from tidegate.pipeline.sources.redis_stream import read_redis

            return read_redis(spark, source)


def are_checked(definition: StreamDefinition) -> bool:
    """Whether a gateway has seen that the messages of a source are records."""
    return isinstance(definition.source, TopicSource)
