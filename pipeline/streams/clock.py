"""A clock for streams that hold keys: a source without messages that has a batch when one is due.

A silent topic gives Spark no batch, and what is held would wait for the next message.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidegate.pipeline.columns.rows import PUBLISHED
from tidegate.pipeline.columns.saving import DUE
from tidegate.pipeline.streams.shard_state import ShardState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def due_batches(spark: SparkSession, held: ShardState) -> DataFrame:
    """Return a stream of no messages whose batches come when something held is due."""
    spark.dataSource.register(ClockSource)
    return spark.readStream.format(ClockSource.name()).option("held", str(held.folder)).load()


class ClockSource(DataSource):
    """The clock; option `held` is the folder of what is held."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tidegate-clock"

    def schema(self) -> str:
        """Return the columns of messages, of which there are none."""
        return PUBLISHED

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream of batches."""
        return ClockReader(ShardState(Path(self.options["held"])))


class ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are due times in nanoseconds; each that has passed is a batch."""

    def __init__(self, held: ShardState) -> None:
        self._held = held
        self._stopped = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the offset before the first."""
        return {"due_ns": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return no limit: there are no messages."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stand still: at the end of recorded input all that is held goes out anyway."""
        # A query of `availableNow` ends when no source has news; a clock would always have some.
        self._stopped = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the earliest due time once it has come; else the offset as it was."""
        # Read on every trigger, so it must be cheap: a note in each table's footer, not its rows.
        due_ns = None if self._stopped else self._held.earliest(DUE)
        # An offset must not go back, or Spark would take the batch for one that was done.
        if due_ns is None or due_ns > time.time_ns() or due_ns <= start["due_ns"]:
            return start
        return {"due_ns": due_ns}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return none: there are no messages."""
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return nothing; Spark never calls this."""
        yield from ()
