"""The source of a definition, opened as a stream of PUBLISHED rows, or of blocks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from tidegate.pipeline.columns.blocks import PAGES, page_of, published_rows
from tidegate.pipeline.columns.rows import published
from tidegate.pipeline.definitions.source import (
    FilesSource,
    KafkaSource,
    RateSource,
    RedisSource,
    TopicSource,
)
from tidegate.pipeline.definitions.stream import StreamDefinition
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.format.options import ReadOptions
from tidegate.pipeline.format.reader import JournalStreamReader
from tidegate.pipeline.format.source import TidegateSource
from tidegate.pipeline.format.start import START_FILE
from tidegate.pipeline.sources.files import read_files
from tidegate.pipeline.sources.kafka import connector_jars, read_kafka

# --- a gateway topic; its positions are the order of publication


WITH_KEYS, CORES = "with_keys", "cores"


class TopicJournals(TidegateSource):
    """The data source under a name that is registered.

    Spark looks for formats once in a session. If the Python that looks starts too late, the
    session would never find one by itself.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tidegate-topic"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream that follows the journal."""
        options = {name.lower(): text for name, text in self.options.items()}
        start_file = options.pop(START_FILE, None)
        return JournalStreamReader(replace(ReadOptions.of(options), start_file=start_file))


class TopicPages(TidegateSource):
    """A topic's journal as pages of PUBLISHED rows."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tidegate-pages"

    def schema(self) -> str:
        """Return the column of pages."""
        return PAGES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream that follows the journal."""
        options = {name.lower(): text for name, text in self.options.items()}
        with_keys, cores = options.pop(WITH_KEYS) == "true", int(options.pop(CORES))
        start_file = options.pop(START_FILE, None)
        asked = replace(ReadOptions.of(options), cores=cores, start_file=start_file)
        return TopicReader(asked, with_keys)


class TopicReader(JournalStreamReader):
    """A topic's journal, followed, in pages of PUBLISHED rows; `with_keys` as in `read_topic`."""

    def __init__(self, options: ReadOptions, with_keys: bool) -> None:
        super().__init__(options)
        self._with_keys = with_keys

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the pages of one slice, on an executor."""
        for rows in super().read(partition):
            if len(rows):
                yield page_of(journal_as_published(rows, self._with_keys))


def journal_as_published(rows: pa.RecordBatch, with_keys: bool) -> pa.RecordBatch:
    """Return rows of a journal (`format.envelope.SCHEMA`) as PUBLISHED rows."""
    keys, removed = rows.column("key"), rows.column("removed")
    if not with_keys:  # only a removal is named by the topic's key
        keys = pc.if_else(removed.is_null(), pa.scalar(None, pa.string()), keys)
    return published_rows(
        file=pa.repeat("", len(rows)),
        block=pa.repeat(pa.scalar(0, pa.int64()), len(rows)),
        position=rows.column("offset"),
        time_ms=rows.column("timestamp_ms"),
        key=keys,
        body=rows.column("value").view(pa.binary()),
        removed=removed,
    )


def journal_rows(
    spark: SparkSession, source: TopicSource, gateway: str, checkpoint: Path
) -> DataFrame:
    """Return a topic's journal as a stream (`format.envelope.SCHEMA`)."""
    return _reader(spark, TopicJournals, source, gateway, checkpoint).load()


def read_topic(
    spark: SparkSession,
    source: TopicSource,
    gateway: str,
    checkpoint: Path,
    *,
    with_keys: bool = False,
) -> DataFrame:
    """Return the messages of a topic (`columns.blocks.PAGES`); its gateway has checked them.

    `checkpoint` keeps where the stream began. `with_keys`: the topic's own keys are the records',
    whatever fields these have.
    """
    reader = _reader(spark, TopicPages, source, gateway, checkpoint)
    cores = spark.sparkContext.defaultParallelism
    return reader.option(WITH_KEYS, str(with_keys).lower()).option(CORES, cores).load()


def _reader(
    spark: SparkSession,
    kind: type[TidegateSource],
    source: TopicSource,
    gateway: str,
    checkpoint: Path,
) -> DataStreamReader:
    spark.dataSource.register(kind)
    reader = (
        spark.readStream.format(kind.name())
        .option("gateway", source.address or gateway)
        .option("prefix", source.prefix)
        .option("topic", source.topic)
        .option("from", source.start)
        .option(START_FILE, str(checkpoint / f"start.{source.topic}"))
    )
    if source.rows_per_batch is not None:
        reader = reader.option("rows_per_batch", source.rows_per_batch)
    return reader


# --- rows made for trying out: a row follows from its number, the same in every attempt
#
#     {"symbol":"S7","sequence":1234,"price":103.41,"ts":1795000000000}
#
# Spark's own `rate` counts them; a checkpoint knows when it began, and what was due in a pause
# comes after it.


def read_rate(spark: SparkSession, source: RateSource) -> DataFrame:
    """Return rows (`columns.rows.PUBLISHED`) as fast as the source says."""
    reader = spark.readStream.format("rate").option("rowsPerSecond", source.rows_per_second)
    return made(reader.load(), source)


def made(counted: DataFrame, source: RateSource) -> DataFrame:
    """Return rows of a counter (`value`, `timestamp`); the same for the same source."""
    return published(
        counted,
        file="'rate'",
        block="0",
        position="value + 1",
        time_ms="unix_millis(timestamp)",
        body=f"""to_json(named_struct(
            'symbol', concat('S', pmod(xxhash64(value, {source.seed}L), {source.keys}L)),
            'sequence', value,
            'price', 100 + pmod(xxhash64({source.seed}L, value), 1000L) / 100,
            'ts', unix_millis(timestamp)
        ))""",
    )


# --- the source of a definition


def jars_of(definitions: Iterable[StreamDefinition]) -> list[Path]:
    """Return the jars that the sources of some streams need besides Spark's own.

    Raises:
        DefinitionInvalid: they name different connectors; one Spark has one.
        SparkUnavailable: it cannot be had.
    """
    sources = [source for each in definitions for source in each.sources]
    kafka = {each.connector: each for each in sources if isinstance(each, KafkaSource)}
    # Spark has one class path: two versions of a connector cannot be loaded into it.
    if len(kafka) > 1:
        raise DefinitionInvalid("the Kafka sources of a file have one connector, not several")
    return [jar for source in kafka.values() for jar in connector_jars(source)]


def open_source(spark: SparkSession, definition: StreamDefinition) -> DataFrame:
    """Return the messages of a definition's source (PUBLISHED rows, or blocks or pages of them).

    Without a key in the definition a topic's messages come with their keys.

    Raises:
        PipelineError: the source is not as the definition says.
    """
    match definition.source:
        case TopicSource() as source:
            with_keys = not definition.key
            return read_topic(
                spark, source, definition.gateway, definition.checkpoint, with_keys=with_keys
            )
        case FilesSource() as source:
            return read_files(spark, source)
        case KafkaSource() as source:
            return read_kafka(spark, source, definition.key)
        case RateSource() as source:
            return read_rate(spark, source)
        case RedisSource() as source:
            # Here, not above: redis-py takes a fifth of a second to import.
            from tidegate.pipeline.sources.redis_stream import read_redis

            return read_redis(spark, source, definition.checkpoint)


def are_checked(definition: StreamDefinition) -> bool:
    """Return whether a gateway has checked that the messages of a source are records."""
    return isinstance(definition.source, TopicSource)
