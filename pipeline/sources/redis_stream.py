"""Spark's data source over a Redis stream of others: pages of PUBLISHED rows, one an entry.

An offset is `{"id", "entries"}`: the entry that was read last, and how many were read until then.
So a batch has a number of rows, and a repeated batch with fewer entries is noticed. Planning takes
ids to the driver; only executors fetch entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidegate.keys.text.bookmark import START
from tidegate.pipeline.columns.blocks import PAGES, page_of, published_rows
from tidegate.pipeline.definitions.source import RedisSource
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.format.options import rows_per_task
from tidegate.pipeline.format.start import START_FILE, recorded_start
from tidegate.pipeline.redis_server import RedisServer
from tidegate.pipeline.sources.redis_entries import BEGINNING, Entries, Fields, as_json

FORMAT = "tidegate-redis"

Offset = dict[str, str | int]


def read_redis(spark: SparkSession, source: RedisSource, checkpoint: Path) -> DataFrame:
    """Return the entries of a stream (`columns.blocks.PAGES`), unchecked.

    `checkpoint` keeps where it began.
    """
    spark.dataSource.register(RedisStreams)
    reader = (
        spark.readStream.format(FORMAT)
        .option("url", source.address)  # Spark redacts options named `url`; it may have a password
        .option("stream", source.stream)
        .option("from", source.start)
        .option(START_FILE, str(checkpoint / f"start.{sha256(source.stream.encode()).hexdigest()}"))
        .option("field", source.field or "")
        .option("cores", spark.sparkContext.defaultParallelism)
    )
    if source.rows_per_batch is not None:
        reader = reader.option("rows_per_batch", source.rows_per_batch)
    return reader.load()


@dataclass(frozen=True)
class EntriesSlice(InputPartition):
    """The entries of one task: `rows` after one id up to and including another."""

    after: str
    last: str
    rows_before: int
    rows: int


class RedisStreams(DataSource):
    """A Redis stream as Spark knows it; options as `read_redis` gives them."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the column of pages."""
        return PAGES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream that follows the entries."""
        return EntriesReader({name.lower(): text for name, text in self.options.items()})


class EntriesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A Redis stream, followed; admission is by rows, a target is an id."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._target: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a stream without checkpoint begins.

        Raises:
            SourceLost: `from` names an entry that is not there.
        """
        return recorded_start(self._options.get(START_FILE), self._first)

    def _first(self) -> Offset:
        start = self._options["from"]
        if start == START:
            return {"id": BEGINNING, "entries": 0}
        with self._entries() as entries:
            if start == "now":
                return {"id": entries.last(), "entries": 0}
            if not entries.can_resume_after(start):
                stream = self._options["stream"]
                raise SourceLost(
                    f"from = {start!r} is not an entry of Redis stream {stream}: "
                    "from = 'epoch' reads all that it has"
                )
        return {"id": start, "entries": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return `rows_per_batch` as Spark's limit."""
        rows = self._options.get("rows_per_batch")
        return ReadMaxRows(int(rows)) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the newest entry as the last one to be read."""
        with self._entries() as entries:
            self._target = entries.last()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch, at most `limit` rows on; `start` if nothing is new."""
        # A connection for each trigger: Spark pickles the reader, and no socket survives that.
        with self._entries() as entries:
            after, read = _parts(start)
            # Trimming leaves no trace in later reads: only the last read entry can prove that none
            # is missing.
            entries.require(after)
            until = self._target or entries.last()
            # Without a limit the step still counts: only a number of rows shows a trimmed batch.
            bound = limit.max_rows if isinstance(limit, ReadMaxRows) else 2**62
            rows, last = entries.step(after, until, bound)
        return {"id": last, "entries": read + rows}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return slices of one micro-batch, each small enough for one task.

        Raises:
            SourceLost: there are fewer entries than when the batch was planned.
        """
        (after, read), (until, rows) = _parts(start), _parts(end)
        slices: list[EntriesSlice] = []
        size = rows_per_task(rows - read, int(self._options["cores"]))
        with self._entries() as entries:
            while read < rows:
                found, last = entries.step(after, until, min(size, rows - read))
                if not found:
                    raise lost(self._options["stream"], after)
                # With the rows before it, so that a slice numbers its rows without the others.
                slices.append(EntriesSlice(after, last, read, found))
                after, read = last, read + found
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the pages of one slice, on an executor.

        Raises:
            SourceLost: entries were deleted or trimmed since the batch was planned.
        """
        assert isinstance(partition, EntriesSlice)
        stream, field = self._options["stream"], self._options["field"].encode()
        read = partition.rows_before
        with self._entries() as entries:
            for page in entries.pages(partition.after, partition.last):
                yield page_of(entries_batch(stream, page, read, field))
                read += len(page)
        if read != partition.rows_before + partition.rows:
            raise lost(stream, partition.after)

    @contextmanager
    def _entries(self) -> Iterator[Entries]:
        with RedisServer(self._options["url"]) as server:
            yield Entries(server, self._options["stream"])


def lost(stream: str, after: str) -> SourceLost:
    """Return the error for entries that are gone."""
    return SourceLost(f"Redis stream {stream} no longer holds all entries after {after}")


def entries_batch(
    stream: str, page: Sequence[tuple[bytes, Fields]], read: int, field: bytes
) -> pa.RecordBatch:
    """Return PUBLISHED rows of entries that follow `read` others; ids give their times.

    An entry without `field` has the body `null`, which is no record.
    """
    rows = len(page)
    bodies = [fields.get(field, b"null") if field else as_json(fields) for _, fields in page]
    return published_rows(
        file=pa.repeat(stream, rows),
        block=pa.repeat(pa.scalar(0, pa.int64()), rows),
        position=pa.array(range(read + 1, read + 1 + rows), pa.int64()),
        time_ms=pa.array([int(at.partition(b"-")[0]) for at, _ in page], pa.int64()),
        body=pa.array(bodies, pa.binary()),
    )


def _parts(offset: Offset) -> tuple[str, int]:
    return str(offset["id"]), int(offset["entries"])
