"""`spark.readStream.format("tidegate")`: a topic's journal as a stream and as a batch.

Options: `gateway` (http://127.0.0.1:8080), `topic`, `from` (`epoch`, `now` or a bookmark) and
`rows_per_batch` (no limit). Offsets are bookmarks, `{"bookmark": "<epoch>-<position>"}`, so a
checkpoint says by itself which life of the topic it belongs to. Planning costs one small
request; messages are fetched by the executors alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.bookmark import START, join_bookmark, split_bookmark
from pipeline.datasource.envelope import envelope_batch
from pipeline.errors import DefinitionInvalid, SourceLost
from pipeline.gateway import DEFAULT_GATEWAY, Gateway, Journal

SCHEMA = "offset long, key string, value string, timestamp_ms long, bookmark string"
MESSAGES_PER_TASK_MAX = 20_000
MESSAGES_PER_REQUEST_MAX = 5_000
OPTIONS = {"gateway", "topic", "from", "rows_per_batch"}


@dataclass(frozen=True)
class TopicOptions:
    """The data source's options, checked."""

    gateway: str
    topic: str
    start: str
    rows_per_batch: int | None

    @classmethod
    def of(cls, options: dict[str, str]) -> TopicOptions:
        """From Spark's option texts.

        Raises:
            DefinitionInvalid: unknown, missing or malformed options.
        """
        given = {name.lower(): text for name, text in options.items()}
        unknown = sorted(given.keys() - OPTIONS)
        if unknown:
            raise DefinitionInvalid(
                f"format tidegate has no option {unknown[0]}; it takes {', '.join(sorted(OPTIONS))}"
            )
        if not given.get("topic"):
            raise DefinitionInvalid('format tidegate needs .option("topic", NAME)')
        rows = given.get("rows_per_batch")
        if rows is not None and not (rows.isascii() and rows.isdigit() and int(rows) > 0):
            raise DefinitionInvalid(f"rows_per_batch is a whole number above 0, not {rows}")
        return cls(
            gateway=given.get("gateway", DEFAULT_GATEWAY),
            topic=given["topic"],
            start=given.get("from", START),
            rows_per_batch=int(rows) if rows else None,
        )


@dataclass(frozen=True)
class JournalSlice(InputPartition):
    """The messages of one task: positions after `after` up to and including `last`."""

    epoch: str
    after: int
    last: int


class TidegateSource(DataSource):
    """A gateway topic; columns as in `SCHEMA`, `value` being the JSON text as published."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._topic = TopicOptions.of(dict(options))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tidegate"

    def schema(self) -> str:
        """The columns, always the same."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch: all that the journal holds now, from `from` on."""
        return JournalReader(self._topic)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream that follows the journal."""
        return JournalStreamReader(self._topic)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamReader:  # type: ignore[override]  # it never returns one  # noqa: N802 - Spark's name
        """Refused: a stream reaches a topic through a definition file."""
        raise PySparkNotImplementedError(
            'df.writeStream.format("tidegate") is not available yet: use tidegate pipeline run'
        )


class JournalReader(DataSourceReader):
    """A topic's journal, read once."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Slices from the option `from` to the newest message."""
        edge = JournalEdge(self._options)
        start, end = edge.initial(), edge.end()
        return [] if end is None else edge.slices(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, from an executor."""
        assert isinstance(partition, JournalSlice)
        return read_slice(self._options, partition)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic's journal, followed; admission is by rows, targets by bookmark."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self._edge = JournalEdge(options)
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
        newest = self._edge.end()
        last = self._target if self._targeted else newest
        after = self._edge.resolve(start["bookmark"], newest)
        if last is None:
            return start
        epoch, position = split_bookmark(last)
        if isinstance(limit, ReadMaxRows):
            position = min(position, after + limit.max_rows)
        return start if position <= after else {"bookmark": join_bookmark(epoch, position)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Slices of one micro-batch, each small enough for one task."""
        if start == end:
            return []
        return self._edge.slices(start["bookmark"], end["bookmark"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, from an executor."""
        assert isinstance(partition, JournalSlice)
        return read_slice(self._options, partition)


class JournalEdge:
    """The driver's view of a topic's journal: its ends, and what is cut from it."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def initial(self) -> str:
        """The bookmark after which reading begins; `epoch` if an empty topic tells no epoch."""
        journal = self._journal()
        end = _end(journal)
        if self._options.start == "now":
            return end or START
        if self._options.start == START:
            if journal.first is None:
                return end or START
            epoch, position = split_bookmark(journal.first)
            return join_bookmark(epoch, position - 1)
        try:
            split_bookmark(self._options.start)
        except ValueError as error:
            raise DefinitionInvalid(f"from is epoch, now or a bookmark: {error}") from None
        self.resolve(self._options.start, end)
        return self._options.start

    def end(self) -> str | None:
        """The bookmark of the newest message, None if an empty topic tells no epoch."""
        return _end(self._journal())

    def resolve(self, start: str, end: str | None) -> int:
        """The position of `start`, after proof that it belongs to the topic's life of `end`.

        Raises:
            SourceLost: another epoch, or a position that the topic has not reached.
        """
        if start == START:
            return 0
        epoch, position = split_bookmark(start)
        live_epoch, live_position = split_bookmark(end) if end else ("of an empty topic", 0)
        if epoch != live_epoch:
            raise SourceLost(
                f"the checkpoint was made with another life of topic {self._options.topic} "
                f"(epoch {epoch}, now {live_epoch}): "
                "remove the checkpoint to read the new one from its start"
            )
        if position > live_position:
            raise SourceLost(
                f"topic {self._options.topic} ends at position {live_position}, before position "
                f"{position} that was read earlier: the gateway has lost messages"
            )
        return position

    def slices(self, start: str, end: str) -> list[JournalSlice]:
        """Even slices of what lies between two bookmarks."""
        epoch, last = split_bookmark(end)
        after = self.resolve(start, end)
        rows = last - after
        count = -(-rows // MESSAGES_PER_TASK_MAX)
        cuts = [after + rows * part // count for part in range(count)] + [last] if rows > 0 else []
        return [JournalSlice(epoch=epoch, after=low, last=high) for low, high in pairwise(cuts)]

    def _journal(self) -> Journal:
        with Gateway(self._options.gateway) as gateway:
            return gateway.journal(self._options.topic)


def _end(journal: Journal) -> str | None:
    if journal.last is None and journal.epoch is not None:
        return join_bookmark(journal.epoch, 0)
    return journal.last


def read_slice(options: TopicOptions, part: JournalSlice) -> Iterator[pa.RecordBatch]:
    """Fetch one slice in pages; positions must be contiguous, else messages are missing.

    Raises:
        SourceLost: the journal was trimmed, or the topic began a new life.
    """
    after = part.after
    with Gateway(options.gateway) as gateway:
        while after < part.last:
            wanted = min(part.last - after, MESSAGES_PER_REQUEST_MAX)
            since = join_bookmark(part.epoch, after) if after else START
            page = envelope_batch(gateway.messages(options.topic, since, wanted), part.epoch, after)
            if page.num_rows == 0:
                raise SourceLost(
                    f"topic {options.topic} no longer holds the messages after position {after}"
                )
            yield page
            after += page.num_rows
