"""A topic of Kafka as a stream of PUBLISHED rows, through Spark's own connector.

Kafka orders messages within a partition only. The newest message of a key is exact if the key is
always in one partition, as with producers that partition by key. Across partitions the order is
(partition, offset). A tombstone removes the record that its Kafka key names.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow as pa
from pyspark import __version__
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.pandas.functions import arrow_udf

from tidegate.keys.spec import KeySpec, record_key
from tidegate.keys.text.bookmark import START
from tidegate.pipeline.columns.rows import published
from tidegate.pipeline.definitions.source import KafkaSource, KeyFormat
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.sources.broker_key import KeyAmbiguous, removed_key
from tidegate.pipeline.spark.jvm import java_command

# --- the connector: Java packages that Spark's distribution lacks
#
# Spark's jars have Ivy among them. Ivy asks the repositories that Spark would ask and keeps the
# packages in `~/.ivy2`. It runs in a process of its own, so a package that cannot be fetched is one
# sentence and not a Spark that fails to start.

FETCH_SECONDS_MAX = 600  # the first time only: Ivy keeps what it has fetched
NOT_FOUND = re.compile(r"::\s+(\S+#\S+;\S+): (.*\S)")


def fetch_jars(
    modules: Iterable[str], *, without: Iterable[str] = (), is_transitive: bool = True
) -> list[Path]:
    """Return the jars of modules (`organisation:name:version`) and of what they need.

    Organisations `without` are left out.

    Raises:
        SparkUnavailable: no Java, no such package, or no repository that answers.
    """
    asked = list(modules)
    with tempfile.TemporaryDirectory(prefix="tidegate-ivy-") as folder:
        wanted, found = Path(folder, "ivy.xml"), Path(folder, "classpath")
        wanted.write_text(_ivy_file(asked, list(without), is_transitive), encoding="utf-8")
        command = [java_command(), "-jar", str(_ivy()), "-ivy", str(wanted)]
        command += ["-types", "jar", "bundle", "-cachepath", str(found)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                cwd=folder,
                timeout=FETCH_SECONDS_MAX,
                start_new_session=True,  # a terminal's Ctrl-C reaches only this process
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _missing(asked, type(error).__name__) from None
        if done.returncode or not found.exists():
            raise _missing(asked, _reason(done.stdout + done.stderr))
        return [Path(name) for name in found.read_text().strip().split(os.pathsep)]


def _ivy() -> Path:
    jars = sorted(Path(_find_spark_home(), "jars").glob("ivy-*.jar"))
    if not jars:
        raise SparkUnavailable("this Spark has no Ivy among its jars: name a folder of jars")
    return jars[-1]


def _ivy_file(modules: list[str], without: list[str], is_transitive: bool) -> str:
    excluded = "".join(f"<exclude org={quoteattr(name)}/>" for name in without)
    how = f'conf="default->default" transitive="{str(is_transitive).lower()}"'
    lines: list[str] = []
    for module in modules:
        organisation, name, version = map(quoteattr, module.split(":"))
        place = f"org={organisation} name={name} rev={version}"
        lines.append(f"<dependency {place} {how}>{excluded}</dependency>")
    head = '<ivy-module version="2.0"><info organisation="tidegate" module="packages"/>'
    return f"{head}<dependencies>{''.join(lines)}</dependencies></ivy-module>\n"


def _reason(said: str) -> str:
    """Return the first package that Ivy did not find, or its last line."""
    missing = NOT_FOUND.search(said)
    if missing:
        return f"{missing[1].replace('#', ':').replace(';', ':')} {missing[2]}"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no reason given"]
    return lines[-1][:200]


def _missing(modules: list[str], reason: str) -> SparkUnavailable:
    return SparkUnavailable(f"{modules[0]} cannot be had ({reason})")


# --- messages

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
# The connector depends on these too, but every Spark has them.
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
    """Return the jars of Spark's Kafka connector: the source's folder of them, or fetched.

    Raises:
        SparkUnavailable: they cannot be had; the text says what to do.
    """
    if isinstance(source.connector, Path):
        return sorted(source.connector.glob("*.jar"))
    module = CONNECTOR.format(version=source.connector or __version__)
    try:
        return fetch_jars([module], without=IN_SPARK)
    except SparkUnavailable as error:
        raise SparkUnavailable(
            f"{error}: name a version or a folder of jars as connector of the source"
        ) from None


def read_kafka(spark: SparkSession, source: KafkaSource, spec: KeySpec) -> DataFrame:
    """Return the messages of a topic (`columns.rows.PUBLISHED`), unchecked.

    A tombstone whose key names no record of `spec` has the body `null`, which is no record either.
    """
    reader = (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": setting for name, setting in source.options})
        .option("kafka.bootstrap.servers", source.brokers)
        .option("subscribe", source.kafka_topic)
        # For the first start of a query only: later ones continue from the checkpoint.
        .option("startingOffsets", "earliest" if source.start == START else "latest")
    )
    if source.rows_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", source.rows_per_batch)

    def removed_by(texts: pa.Array) -> pa.Array:
        return removed_keys(texts, spec, source.key_format)

    by_columns: Any = arrow_udf  # its hints ask for what it has a default for
    # Only a tombstone's key goes to Python; the others are null there.
    tombstone = F.expr("CASE WHEN value IS NULL THEN coalesce(key, CAST('' AS BINARY)) END")
    return published(
        reader.load().withColumn("named", by_columns(removed_by, "string")(tombstone)),
        file="topic",
        block="partition",
        position="offset",
        time_ms="unix_millis(timestamp)",
        key="named",
        body="IF(value IS NULL AND named IS NULL, CAST('null' AS BINARY), value)",
    )


def removed_keys(texts: pa.Array, spec: KeySpec, key_format: KeyFormat | None = None) -> pa.Array:
    """Return the records that keys of Kafka name.

    Null where there is no text, no record of that name, or a key that is ambiguous without a
    `key_format`.
    """
    key_of = record_key(spec)

    def named(text: bytes | None) -> str | None:
        try:
            return None if text is None else removed_key(text, spec, key_of, key_format)
        except KeyAmbiguous:
            return None

    return pa.array([named(text) for text in texts.to_pylist()], pa.string())
