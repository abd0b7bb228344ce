"""A topic of Kafka as a stream of PUBLISHED rows, through Spark's own connector.

Kafka orders what is in one partition, and nothing across them: the newest of a key is exact as long
as the key lives in one partition, where producers put it. Across partitions the order is theirs:
(partition, offset). A tombstone removes the record that its Kafka key names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidegate.keys.errors import KeyInvalid, KeysError
from tidegate.keys.jsontext import check_json
from tidegate.keys.spec import KeyOf, KeySpec, canonical_key, record_key
from tidegate.keys.text.bookmark import START
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.spark.packages import fetch_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipeline.definitions.external import KafkaSource

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
# What the connector needs as well, and every Spark has.
IN_SPARK = (
    "at.yawk.lz4",
    "com.github.luben",
    "com.google.code.findbugs",
    "org.apache.hadoop",
    "org.lz4",
    "org.scala-lang",
    "org.scala-lang.modules",
    "org.slf4j",
    "org.xerial.snappy",
)


def connector_jars(source: KafkaSource) -> list[Path]:
    """The jars of Spark's Kafka connector: from the folder that the source names, or fetched.

    Raises:
        SparkUnavailable: they cannot be had; the text says what to do.
    """
    if isinstance(source.connector, Path):
        return sorted(source.connector.glob("*.jar"))
    from pyspark import __version__

    module = CONNECTOR.format(version=source.connector or __version__)
    try:
        return fetch_jars([module], without=IN_SPARK)
    except SparkUnavailable as error:
        raise SparkUnavailable(
            f"{error}: name a version or a folder of jars as connector of the source"
        ) from None


def read_kafka(spark: SparkSession, source: KafkaSource, spec: KeySpec) -> DataFrame:
    """The messages of a topic (`columns.rows.PUBLISHED`), unchecked; `block` is the partition.

    A tombstone whose key names no record of `spec` has the body `null`, which is no record either.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
    from pyspark.sql.pandas.functions import arrow_udf

    reader = (
        spark.readStream.format("kafka")
        .options(**dict(source.options))
        .option("kafka.bootstrap.servers", source.brokers)
        .option("subscribe", source.kafka_topic)
        .option("startingOffsets", "earliest" if source.start == START else "latest")
    )
    if source.rows_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", source.rows_per_batch)

    def removed_by(texts: pa.Array) -> pa.Array:
        return removed_keys(texts, spec)

    by_columns: Any = arrow_udf  # its hints ask for what it has a default for
    # Only a tombstone's key goes to Python; the others are null there.
    tombstone = F.expr("CASE WHEN value IS NULL THEN coalesce(key, CAST('' AS BINARY)) END")
    return (
        reader.load()
        .withColumn("removed", by_columns(removed_by, "string")(tombstone))
        .selectExpr(
            "topic AS file",
            "CAST(partition AS LONG) AS block",
            "offset AS position",
            "unix_millis(timestamp) AS time_ms",
            "removed AS key",
            "CASE WHEN value IS NULL AND removed IS NULL THEN CAST('null' AS BINARY) ELSE value END"
            " AS body",
            "CAST(NULL AS STRING) AS removed",
            "CAST(NULL AS STRING) AS refused",
        )
    )


def removed_keys(texts: pa.Array, spec: KeySpec) -> pa.Array:
    """The records that keys of Kafka name; null where there is no text, or no record."""
    key_of = record_key(spec)
    named = [
        None if text is None else removed_key(text, spec, key_of) for text in texts.to_pylist()
    ]
    return pa.array(named, pa.string())


def removed_key(text: bytes, spec: KeySpec, key_of: KeyOf) -> str | None:
    """The record that a key of Kafka names: its object's fields, its array, or its one value.

    A text that is no JSON is a string.
    """
    try:
        if text[:1] == b"{":
            check_json(text)
            return key_of(text)
        named = canonical_key(text if text[:1] == b"[" else b"[%s]" % _value(text))
    except (KeysError, UnicodeDecodeError):
        return None
    fields = msgspec.json.decode(named)
    return named if len(fields) == len(spec.paths) and None not in fields else None


def _value(text: bytes) -> bytes:
    if not text:
        raise KeyInvalid("no key")
    try:
        check_json(text)
    except KeysError:
        return msgspec.json.encode(text.decode())
    return text
