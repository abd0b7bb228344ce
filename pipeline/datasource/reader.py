"""A topic's journal as Spark reads it: once, or followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.bookmark import join_bookmark, split_bookmark
from pipeline.datasource.options import ReadOptions
from pipeline.datasource.slices import JournalEdge, JournalSlice, read_slice
from pipeline.datasource.travel import Traveller
from pipeline.errors import CheckpointMismatch


class JournalReader(Traveller, DataSourceReader):
    """A topic's journal, read once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Slices from the option `from` to the newest message."""
        edge = JournalEdge(self._options)
        start, end = edge.initial(), edge.end()
        return [] if end is None else edge.slices(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, from an executor."""
        if not isinstance(partition, JournalSlice):  # Spark makes one up where there is none
            return iter(())
        return read_slice(self._options, partition)


class JournalStreamReader(Traveller, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic's journal, followed; admission is by rows, targets by bookmark."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._edge = JournalEdge(options)
        self._newest: str | None = None
        self._target: str | None = None
        self._targeted = False

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Where a stream without checkpoint begins."""
        return {"bookmark": self._edge.initial()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """`rows_per_batch` as Spark knows it."""
        rows = self._options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the newest message as the last one to be read."""
        self._target = self._edge.end()
        self._targeted = True

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch, at most `limit` rows on; `start` if nothing is new."""
        self._newest = newest = self._edge.end()
        last = self._target if self._targeted else newest
        after = self._edge.resolve(_bookmark(start), newest)
        if last is None:
            return start
        epoch, position = split_bookmark(last)
        if isinstance(limit, ReadMaxRows):
            position = min(position, after + limit.max_rows)
        return start if position <= after else {"bookmark": join_bookmark(epoch, position)}

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802 - Spark's name
        """The topic's newest message as it was last seen: how far a stream is behind."""
        return None if self._newest is None else {"bookmark": self._newest}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Slices of one micro-batch, each small enough for one task."""
        if start == end:
            return []
        return self._edge.slices(_bookmark(start), _bookmark(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, from an executor."""
        assert isinstance(partition, JournalSlice)
        return read_slice(self._options, partition)


def _bookmark(offset: dict[str, str]) -> str:
    """The bookmark of an offset in a checkpoint.

    Raises:
        CheckpointMismatch: another source has written it.
    """
    if "bookmark" not in offset:
        raise CheckpointMismatch(
            "the checkpoint has the offsets of another source: each stream has one of its own"
        )
    return offset["bookmark"]
