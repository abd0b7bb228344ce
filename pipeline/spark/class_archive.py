"""An archive of the classes of Spark's Java: with it a start takes half of the CPU time.

Java reads and checks 15,000 classes until the first batch is done. It can keep them in a file as
it ends, and map that file at its next starts (class data sharing, JEP 350). The file fits one Java
and one Spark; Java ignores a file that does not fit.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.spark import jvm, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITTEN_SECONDS_MAX = 600.0  # ten on a machine with nothing else to do
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
COLUMNS = "key string, n long"


def make_class_archive() -> Path:
    """Run a small stream on Spark, let its Java keep the classes as it ends; return the file.

    Raises:
        SparkUnavailable: Spark does not start, or Java does not write the file.
    """
    target = jvm.class_archive()
    if target is None:
        raise SparkUnavailable("there is no folder for the archive: set HOME or XDG_CACHE_HOME")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            part = Path(folder, "classes.jsa")
            _write(part, Path(folder, "checkpoint"))
            # As a whole or not at all: another start may look for it at this moment.
            part.replace(target)
    except OSError as error:
        raise SparkUnavailable(f"cannot write {target}: {error.strerror or error}") from error
    return target


def _write(part: Path, checkpoint: Path) -> None:
    before = os.environ.get(SUBMIT_OPTIONS)
    os.environ[SUBMIT_OPTIONS] = f'{before or ""} "-XX:ArchiveClassesAtExit={part}"'
    try:
        with session.spark_session("local[2]") as spark:
            _train(spark, checkpoint)
        session.end_java(WRITTEN_SECONDS_MAX)
    finally:
        if before is None:
            del os.environ[SUBMIT_OPTIONS]
        else:
            os.environ[SUBMIT_OPTIONS] = before
    if not part.exists():
        raise SparkUnavailable("this Java writes no archive of classes; OpenJDK does")


def _train(spark: SparkSession, checkpoint: Path) -> None:
    """Do what running streams do, so that Java loads the classes that they need."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Numbers(DataSource):
        """A stream whose offsets and rows are made in Python, as those of a topic are."""

        @classmethod
        def name(cls) -> str:
            return "tidegate-numbers"

        def schema(self) -> str:
            return COLUMNS

        def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            return NumbersReader()

    class NumbersReader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"n": 0}

        def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"n": 100}

        def partitions(
            self, start: dict[str, int], end: dict[str, int]
        ) -> Sequence[InputPartition]:
            return [InputPartition(n) for n in range(start["n"], end["n"], 50)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"key": ["a", "b"], "n": [1, 2]})

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    def write(frame: DataFrame, _: int) -> None:
        rows = frame.mapInArrow(unchanged, COLUMNS).repartition("key").sortWithinPartitions("n")
        rows.mapInArrow(unchanged, COLUMNS).coalesce(1).mapInArrow(unchanged, COLUMNS).collect()

    spark.dataSource.register(Numbers)
    rows = spark.readStream.format(Numbers.name()).load().selectExpr("key", "n + 0 AS n")
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    for _ in range(2):  # the second start reads the checkpoint of the first
        started = query.trigger(processingTime="100 milliseconds").start()
        started.processAllAvailable()
        started.stop()
