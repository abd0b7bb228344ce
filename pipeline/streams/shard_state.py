"""Held state: tables that outlive a batch, in addition to Spark's own checkpoint.

    <checkpoint>/held/<batch>/<shard>.arrow   what a shard holds after a batch
    <checkpoint>/held/ended                   the batch after which all that was held went out

A task reads what its shard held after batch n - 1, and writes what it holds after batch n. This
follows from the batch and the earlier table alone, so attempts and repetitions write the same.
Batch n removes tables before n - 1. All nodes share the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidegate.pipeline.atomic_files import open_replacement, write
from tidegate.pipeline.columns.conflation import EARLIEST_NS, Conflation
from tidegate.pipeline.columns.intake import conflate_blocks, cut_messages
from tidegate.pipeline.columns.rows import (
    DELIVERIES,
    ROWS,
    Block,
    Messages,
    bound_batches,
    part_of,
    shuffle_partitions,
    to_tasks,
)
from tidegate.pipeline.columns.saving import part_of_shard, restored, saved
from tidegate.pipeline.columns.shard import SPLIT, Shard
from tidegate.pipeline.errors import CheckpointUnusable
from tidegate.pipeline.intervals import MILLISECOND_NS, Pace
from tidegate.pipeline.sinks.sink import END, Batch
from tidegate.pipeline.sinks.tasks import task_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SHARDS = b"shards"
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class ShardState:
    """The tables of one stream; `folder` is `<checkpoint>/held`."""

    folder: Path

    def before(self, batch: Batch) -> str | None:
        """Return the label of what was held before a batch; None before the first."""
        if batch.is_end:
            return Batch(batch.number, 0, "").label
        if batch.number == 0:
            return None
        last = batch.number - 1
        return Batch(last, 0, "", is_end=self.ended == last).label

    def shards(self, label: str | None, new: int) -> int:
        """Return the number of shards: as before, or `new` for a stream that begins.

        A batch that splits a shard writes the greater number into the tables of its parts; it holds
        for all shards.

        Raises:
            CheckpointUnusable: one of their tables is not there.
        """
        if label is None:
            return new
        paths = sorted((self.folder / label).glob("*.arrow"))
        counts = {int(path.stem): int(self.notes(path)[SHARDS]) for path in paths}
        shards = max(counts.values(), default=1)
        for shard in range(shards):
            if _table_of(shard, shards, counts.get) is None:
                raise self._missing(self.path(label, shard))
        return shards

    def read(self, label: str, shard: int, shards: int | None = None) -> pa.Table:
        """Return what a shard held; with `shards`, the table may be of one that was split later.

        Raises:
            CheckpointUnusable: it is not there, or cannot be read.
        """
        if shards is None:
            return self._read(self.path(label, shard))
        number = _table_of(shard, shards, lambda number: self._count(label, number))
        if number is None:
            raise self._missing(self.path(label, shard))
        table = self._read(self.path(label, number))
        count = int(table.schema.metadata[SHARDS])
        return table if count == shards else part_of_shard(table, count, shard, shards)

    def _read(self, path: Path) -> pa.Table:
        try:
            with pa.OSFile(str(path)) as file:
                return pa.ipc.open_file(file).read_all()
        except (OSError, pa.ArrowInvalid):
            raise self._missing(path) from None

    def _count(self, label: str, shard: int) -> int | None:
        """Return how many shards there are for a table; None if it is not there."""
        path = self.path(label, shard)
        return int(self.notes(path)[SHARDS]) if path.exists() else None

    def write(self, label: str, shard: int, table: pa.Table, attempt: int) -> None:
        """Keep what a shard holds; `table` has its `SHARDS` in the schema's notes."""
        path = self.path(label, shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Speculative attempts write at the same time: each needs a file of its own.
        unfinished = path.with_suffix(f".{attempt}.unfinished")
        with (
            open_replacement(path, unfinished) as file,
            pa.ipc.new_file(file, table.schema, options=_LZ4) as stream,
        ):
            stream.write_table(table)

    def notes(self, path: Path) -> Mapping[bytes, bytes]:
        """Return the metadata in the schema of a table.

        Raises:
            CheckpointUnusable: it cannot be read.
        """
        try:
            with pa.OSFile(str(path)) as file:
                return dict(pa.ipc.open_file(file).schema.metadata or {})
        except (OSError, pa.ArrowInvalid):
            raise self._missing(path) from None

    def forget(self, number: int) -> None:
        """Remove what no batch from `number` on needs."""
        for path in self._tables():
            # Spark may repeat batch `number`, which reads the table of the one before.
            if _number(path) < number - 1:
                shutil.rmtree(path, ignore_errors=True)

    def earliest(self, note: bytes) -> int | None:
        """Return the least value of a note in the newest tables; None without tables."""
        tables = [] if self.last is None else self.last.glob("*.arrow")
        return min((int(self.notes(path)[note]) for path in tables), default=None)

    def total(self, note: bytes) -> int:
        """Return the sum of a note over the newest tables; skip tables that go away meanwhile."""
        found = 0
        for path in [] if self.last is None else self.last.glob("*.arrow"):
            # Figures are read by the main thread while the query removes old tables.
            with suppress(CheckpointUnusable):
                found += int(self.notes(path).get(note, 0))
        return found

    @property
    def last(self) -> Path | None:
        """The folder of the newest tables; None before the first batch."""
        return max(self._tables(), default=None)

    @property
    def last_number(self) -> int | None:
        """The number of the batch that wrote the newest tables."""
        return None if self.last is None else _number(self.last)

    @property
    def ended(self) -> int | None:
        """The batch after which all that was held has gone out; None if there is none."""
        path = self.folder / "ended"
        text = path.read_text() if path.exists() else ""
        return int(text) if text.strip().isdigit() else None

    def end(self, number: int) -> None:
        """Note that what was held after a batch has gone out."""
        write(self.folder / "ended", b"%d\n" % number)

    def path(self, label: str, shard: int) -> Path:
        """Return the path of a shard's table."""
        return self.folder / label / f"{shard:04d}.arrow"

    def _tables(self) -> list[Path]:
        return [path for path in self.folder.glob("[0-9]*") if path.is_dir()]

    def _missing(self, path: Path) -> CheckpointUnusable:
        return CheckpointUnusable(
            f"{path} is missing or damaged, and what was held went with it: put the checkpoint "
            "back as a whole, or remove it to begin again"
        )


def _table_of(shard: int, shards: int, count_of: Callable[[int], int | None]) -> int | None:
    """Return the number of the table that has a shard: its own, or that of one before a split."""
    while count_of(shard % shards) != shards:
        if shards % SPLIT:
            return None
        shards //= SPLIT
    return shard % shards


def _number(path: Path) -> int:
    return int(path.name.removesuffix(END))


# --- one batch over all shards
#
#     messages ─► blocks (mapInArrow, where they are) ─► shuffle of blocks ─► shards ─► DELIVERIES
#
# A shard continues from its table of the batch before, and leaves one for the next batch. Every
# shard runs in every batch, even without messages: something may be due.

NONE = np.zeros(0, np.int64)
NOTHING = Messages(
    part_of("", 0), 0, EARLIEST_NS, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
    pa.array([], pa.binary()),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """One batch over all shards; sent to the executors.

    `before` is the label of the tables of the batch before, None at the first; `now_ms` the time
    of the batch in processing time.
    """

    asked: Conflation
    held: ShardState
    batch: Batch
    before: str | None
    shards: int
    now_ms: int | None

    def open_shard(self, number: int) -> Shard:
        """Return a shard as the batch before has left it.

        Raises:
            CheckpointUnusable: what it held is not there.
        """
        now_ns = None if self.now_ms is None else self.now_ms * MILLISECOND_NS
        # In event time with pace=batch all keys share the openings of intervals.
        is_whole = self.now_ms is None and self.asked.interval.pace is Pace.BATCH
        shards = None if is_whole else self.shards
        if self.before is None:
            return Shard(self.asked, now_ns, shards)
        table = self.held.read(self.before, number, self.shards)
        return restored(table, self.asked, now_ns, shards)

    def end_shard(self, number: int, shard: Shard) -> Iterator[pa.RecordBatch]:
        """Yield what a shard sends at the end of the batch, then keep it for the next batch."""
        yield from shard.finish() if self.batch.is_end else shard.close()
        # After the rows, for these leave the shard; if the task fails its table is written again.
        table = saved(shard)
        notes = {**table.schema.metadata, SHARDS: str(shard.shards or self.shards)}
        noted = table.replace_schema_metadata(notes)
        self.held.write(self.batch.label, number, noted, task_attempt())


def conflated(messages: DataFrame, shard_batch: ShardBatch) -> DataFrame:
    """Return DELIVERIES of a batch of PUBLISHED rows."""
    bound_batches(messages)
    cut = partial(cut_messages, conflation=shard_batch.asked, shards=shard_batch.shards)
    blocks = messages.mapInArrow(cut, ROWS)
    return _conflated(blocks.union(_empty_blocks(messages.sparkSession, shard_batch)), shard_batch)


def conflated_end(spark: SparkSession, shard_batch: ShardBatch) -> DataFrame:
    """Return DELIVERIES of all that is held."""
    return _conflated(_empty_blocks(spark, shard_batch), shard_batch)


def _conflated(blocks: DataFrame, shard_batch: ShardBatch) -> DataFrame:
    task = partial(
        conflate_blocks, open_shard=shard_batch.open_shard, end_shard=shard_batch.end_shard
    )
    tasks = min(shard_batch.shards, shuffle_partitions(blocks.sparkSession))
    return to_tasks(blocks, tasks).mapInArrow(task, DELIVERIES)


def _empty_blocks(spark: SparkSession, shard_batch: ShardBatch) -> DataFrame:
    """Return an empty block for each shard."""
    blocks: list[Block] = [
        NOTHING.block(number, NONE, [], NONE) for number in range(shard_batch.shards)
    ]
    return spark.createDataFrame([block.row_of_spark() for block in blocks], ROWS)
