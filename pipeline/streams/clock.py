"""A Spark source that triggers an empty batch when held keys are due.

Without it, held keys of a silent topic would wait for its next message.
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
    """Return a stream without messages that has a batch whenever a held key is due."""
    spark.dataSource.register(ClockSource)
    return spark.readStream.format(ClockSource.name()).option("held", str(held.folder)).load()


class ClockSource(DataSource):
    """The clock; the option `held` is the folder of the state with the held keys."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tidegate-clock"

    def schema(self) -> str:
        """Return the columns of messages; there are never rows."""
        return PUBLISHED

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream of batches."""
        return ClockReader(ShardState(Path(self.options["held"])))


class ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are due times in nanoseconds; each time that has passed makes one batch."""

    def __init__(self, held: ShardState) -> None:
        self._held = held
        self._stopped = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the initial offset."""
        return {"due_ns": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return no limit: there are no messages."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Trigger nothing more: at the end of recorded input all held keys are sent anyway."""
        # A query of `availableNow` ends when no source has new data; a clock would never end it.
        self._stopped = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the earliest due time once it has come; else the offset as it was."""
        # Runs on every trigger, so it must be cheap: it reads a value in each Parquet footer.
        due_ns = None if self._stopped else self._held.earliest(DUE)
        # An offset must not go back, or Spark would treat the batch as committed already.
        if due_ns is None or due_ns > time.time_ns() or due_ns <= start["due_ns"]:
            return start
        return {"due_ns": due_ns}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return none: there are no messages."""
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return nothing; Spark never calls this."""
        yield from ()
