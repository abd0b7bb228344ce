"""The source of a definition, opened as a stream of PUBLISHED rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.definitions.feeds import KafkaSource, RateSource, RedisSource
from pipeline.definitions.files import FilesSource
from pipeline.definitions.source import TopicSource
from pipeline.errors import DefinitionInvalid
from pipeline.sources.files import read_files
from pipeline.sources.kafka import connector_jars, read_kafka
from pipeline.sources.rate import read_rate
from pipeline.sources.topic import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.definitions.stream import StreamDefinition


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
            from pipeline.sources.redis_stream import read_redis

            return read_redis(spark, source)


def are_checked(definition: StreamDefinition) -> bool:
    """Whether a gateway has seen that the messages of a source are records."""
    return isinstance(definition.source, TopicSource)
