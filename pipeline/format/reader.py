"""A topic's journal as Spark reads it: once, or followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidegate.clients.answers import Journal
from tidegate.keys.text.bookmark import START, join_bookmark, split_bookmark
from tidegate.pipeline.connection import gateway_at
from tidegate.pipeline.definitions.toml import RECORDS
from tidegate.pipeline.errors import CheckpointUnusable, DefinitionInvalid, SourceLost
from tidegate.pipeline.format.envelope import of_shard, record_batch
from tidegate.pipeline.format.executor_check import SentToExecutors
from tidegate.pipeline.format.journal import open_journal
from tidegate.pipeline.format.options import ReadOptions
from tidegate.pipeline.format.start import recorded_start

# --- the messages between two bookmarks, cut into slices for tasks

# Stands for the epoch in error messages if the topic has none yet.
NO_EPOCH = "that of an empty topic"


@dataclass(frozen=True)
class JournalSlice(InputPartition):
    """The messages of one task: positions after `after` up to and including `last`.

    With several `shards`, only the messages whose keys belong to `shard`. `trimmed`: read the
    topic's records instead, since these messages have left the journal.
    """

    epoch: str
    after: int
    last: int
    shard: int = 0
    shards: int = 1
    trimmed: bool = False


class JournalEdge:
    """The driver's view of a topic's journal: its ends, and what is cut from it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def initial(self) -> str:
        """Return the bookmark before the first message that the option `from` asks for.

        That is START (`epoch`) if an empty topic has no epoch.

        Raises:
            DefinitionInvalid: `from` is no bookmark.
            SourceLost: it is a bookmark of another topic.
        """
        journal = self.journal()
        end = _end(journal)
        if self._options.start == "now":
            return end or START
        if self._options.start == RECORDS:
            return START if end is None else join_bookmark(split_bookmark(end)[0], 0)
        if self._options.start == START:
            if journal.first is None:
                return end or START
            epoch, position = split_bookmark(journal.first)
            return join_bookmark(epoch, position - 1)
        return self._given(end)

    def end(self) -> str | None:
        """Return the bookmark of the newest message, None if an empty topic has no epoch."""
        return _end(self.journal())

    def resolve(self, start: str, end: str | None) -> int:
        """Return the position of `start`, after a check that its epoch is that of `end`.

        Raises:
            SourceLost: another epoch, or a position that the topic has not reached.
        """
        if start == START:
            return 0
        epoch, position = split_bookmark(start)
        live_epoch, live_position = _epoch_and_position(end)
        if epoch != live_epoch:
            raise SourceLost(
                f"the checkpoint was made with another epoch of topic {self._options.topic} "
                f"(epoch {epoch}, now {live_epoch or NO_EPOCH}): "
                "remove the checkpoint to read the new one from its start"
            )
        if position > live_position:
            raise SourceLost(
                f"topic {self._options.topic} ends at position {live_position}, before position "
                f"{position} that was read earlier: the gateway has lost messages"
            )
        return position

    def slices(self, start: str, end: str) -> list[JournalSlice]:
        """Cut what lies between two bookmarks into even slices, or repeat it for each shard."""
        # Spark repeats what it planned before the topic's epoch was continued by another one.
        live = self.journal()
        start, end = _placed(start, live), _placed(end, live)
        epoch, last = split_bookmark(end)
        after = self.resolve(start, end)
        if after == 0 and self._options.start == RECORDS:
            # Messages that left the journal are read from the state of the world, later ones as
            # messages: together they have the newest message of each record.
            first = live.first
            known = last if first is None else min(last, split_bookmark(first)[1] - 1)
            journal_slices = self._even(epoch, known, last)
            return (
                [JournalSlice(epoch, 0, known, trimmed=True), *journal_slices]
                if known
                else journal_slices
            )
        return self._even(epoch, after, last)

    def _even(self, epoch: str, after: int, last: int) -> list[JournalSlice]:
        rows = last - after
        # A position does not say its key, so each shard's task reads the batch and keeps its own.
        if self._options.shards is not None and rows > 0:
            shards = self._options.shards
            return [JournalSlice(epoch, after, last, shard, shards) for shard in range(shards)]
        # Even slices, so that no task is left with a small rest or a double share.
        count = ceil(rows / self._options.rows_per_task(rows))
        cuts = [after + rows * part // count for part in range(count)] + [last] if rows > 0 else []
        return [JournalSlice(epoch=epoch, after=low, last=high) for low, high in pairwise(cuts)]

    def _given(self, end: str | None) -> str:
        """Check the bookmark of `from` as `resolve` does, but blame no checkpoint."""
        start, topic = self._options.start, self._options.topic
        try:
            epoch, position = split_bookmark(start)
        except ValueError as error:
            raise DefinitionInvalid(f"from is epoch, now, records or a bookmark: {error}") from None
        live_epoch, live_position = _epoch_and_position(end)
        if epoch != live_epoch:
            raise SourceLost(
                f"from = {start[:140]!r} is not a bookmark of topic {topic}, "
                f"whose epoch is {live_epoch or NO_EPOCH}: from = 'epoch' reads all that it has"
            )
        if position > live_position:
            raise SourceLost(
                f"from = {start[:140]!r} is ahead of topic {topic}, which ends at {live_position}"
            )
        return start

    def journal(self) -> Journal:
        """Return both ends, asked now."""
        with open_journal(self._options) as journal:
            return journal.ends()


def _epoch_and_position(end: str | None) -> tuple[str | None, int]:
    """Return epoch and position of a topic's end; None and 0 if it has no epoch."""
    return split_bookmark(end) if end else (None, 0)


def _placed(bookmark: str, journal: Journal) -> str:
    """Return a bookmark of an epoch that the topic's epoch continues as one of that epoch."""
    if bookmark == START or journal.epoch is None:
        return bookmark
    epoch, position = split_bookmark(bookmark)
    if position > journal.continues.get(epoch, -1):
        return bookmark
    return join_bookmark(journal.epoch, position)


def _end(journal: Journal) -> str | None:
    if journal.last is None and journal.epoch is not None:
        return join_bookmark(journal.epoch, 0)
    return journal.last


def read_slice(options: ReadOptions, part: JournalSlice) -> Iterator[pa.RecordBatch]:
    """Fetch one slice in pages; positions must be contiguous, else messages are missing.

    Raises:
        SourceLost: the journal was trimmed, or the topic began a new epoch.
    """
    after = part.after
    if part.trimmed:
        with gateway_at(options.gateway) as gateway:
            for piece in gateway.records(options.topic):
                yield record_batch(piece, part.epoch, part.last)
        return
    with open_journal(options) as journal:
        # In pages, so that a task holds one page in memory, whatever the length of its slice.
        while after < part.last:
            page = journal.page(part.epoch, after, part.last)
            if page.num_rows == 0:
                raise lost(options.topic, part.epoch, after, journal.ends())
            after += page.num_rows
            yield page if part.shards == 1 else of_shard(page, part.shard, part.shards)


def lost(topic: str, epoch: str, after: int, journal: Journal) -> SourceLost:
    """Return the error for messages after position `after` that have left the journal."""
    now, first = split_bookmark(journal.first) if journal.first else (journal.epoch, 0)
    said = f"no longer holds the messages after position {after}"
    if now != epoch:
        said = f"began again after position {after} (epoch {epoch}, now {now or NO_EPOCH})"
    elif first > after + 1:
        said = (
            f"no longer holds {first - 1 - after:,} messages that the stream has not read, "
            f"positions {after + 1} to {first - 1}: give the topic a longer `history`"
        )
    return SourceLost(f"topic {topic} {said}; remove the checkpoint to go on with what is there")


class JournalReader(SentToExecutors, DataSourceReader):
    """A topic's journal, read once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices from the option `from` to the newest message."""
        edge = JournalEdge(self._options)
        start, end = edge.initial(), edge.end()
        return [] if end is None else edge.slices(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one slice, on an executor."""
        if not isinstance(partition, JournalSlice):  # Spark makes one up where there is none
            return iter(())
        return read_slice(self._options, partition)


class JournalStreamReader(SentToExecutors, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic's journal, followed; admission is by rows, targets by bookmark."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._edge = JournalEdge(options)
        self._seen: Journal | None = None
        self._target: str | None = None
        # Beside the target, since None is a valid one: a topic that was still empty.
        self._has_target = False

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return where a stream without checkpoint begins."""
        return recorded_start(self._options.start_file, lambda: {"bookmark": self._edge.initial()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return `rows_per_batch` as Spark's limit."""
        rows = self._options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the newest message as the last one to be read."""
        self._target = self._edge.end()
        self._has_target = True

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the end of the next batch, at most `limit` rows on; `start` if nothing is new."""
        self._seen = self._edge.journal()
        newest = _end(self._seen)
        last = self._target if self._has_target else newest
        last = None if last is None else _placed(last, self._seen)
        # Checked at each trigger: Spark takes whatever offset it is given, and a topic that was
        # made again would be read from the middle.
        after = self._edge.resolve(_placed(_bookmark(start), self._seen), newest)
        if last is None:
            return start
        epoch, position = split_bookmark(last)
        # Positions are contiguous, so a number of rows is a number of positions.
        if isinstance(limit, ReadMaxRows):
            position = min(position, after + limit.max_rows)
        return start if position <= after else {"bookmark": join_bookmark(epoch, position)}

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802 - Spark's name
        """Return the ends of the journal that was seen; the status derives the lag from them."""
        seen = self._seen
        if seen is None or (newest := _end(seen)) is None:
            return None
        return {"bookmark": newest, "first": seen.first or newest}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return slices of one micro-batch, each small enough for one task."""
        # Spark asks for an empty range too, when another source of the same query has news.
        if start == end:
            return []
        return self._edge.slices(_bookmark(start), _bookmark(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one slice, on an executor."""
        assert isinstance(partition, JournalSlice)
        return read_slice(self._options, partition)


def _bookmark(offset: dict[str, str]) -> str:
    """Return the bookmark of an offset in a checkpoint.

    Raises:
        CheckpointUnusable: another source has written it.
    """
    if "bookmark" not in offset:
        raise CheckpointUnusable(
            "the checkpoint has the offsets of another source: each stream has one of its own"
        )
    return offset["bookmark"]
