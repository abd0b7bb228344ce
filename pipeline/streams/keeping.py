"""Batches of a stream that holds something between them: by shards, from one batch to the next.

    messages ──► blocks (mapInArrow, where they are) ──► shuffle of blocks ──► shards ──► SENT rows

A shard goes on from its table of the batch before, and leaves one for the batch after.
Every shard has its turn in every batch, also where nothing came for it: something may be due.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.columns.blocks import ORDER, ROWS, Block, unpacked
from pipeline.columns.conflation import Conflation
from pipeline.columns.deliveries import REFUSED, cut_messages
from pipeline.columns.intervals import MILLISECOND_NS
from pipeline.columns.messages import Messages
from pipeline.columns.rows import DELIVERIES
from pipeline.columns.saved import restored, saved
from pipeline.columns.shard import Shard, refused
from pipeline.columns.timeline import EARLIEST_NS
from pipeline.sinks.dead_letters import attempt
from pipeline.sinks.sink import Batch
from pipeline.streams.held import SHARDS, Held
from pipeline.streams.plans import bound_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NONE = np.zeros(0, np.int64)
NOTHING = Messages(
    "\0" + "0" * 19, 0, EARLIEST_NS, NONE, NONE, NONE, NONE, NONE, NONE, pa.array([], pa.binary())
)


@dataclass(frozen=True, slots=True)
class Keeping:
    """What the shards of a batch go on from; travels to the executors.

    `before` is the label of the tables of the batch before, None at the first; `now_ms` the time
    of the batch in processing time.
    """

    asked: Conflation
    held: Held
    batch: Batch
    before: str | None
    shards: int
    now_ms: int | None

    def opened(self, number: int) -> Shard:
        """A shard as the batch before has left it.

        Raises:
            CheckpointMismatch: what it held is not there.
        """
        now_ns = None if self.now_ms is None else self.now_ms * MILLISECOND_NS
        if self.before is None:
            return Shard(self.asked, now_ns)
        return restored(self.held.read(self.before, number), self.asked, now_ns)

    def close(self, number: int, shard: Shard) -> None:
        """Keep a shard for the next batch."""
        table = saved(shard)
        notes = {**table.schema.metadata, SHARDS: str(self.shards)}
        noted = table.replace_schema_metadata(notes)
        self.held.write(self.batch.label, number, noted, attempt())


def kept(messages: DataFrame, keeping: Keeping) -> DataFrame:
    """DELIVERIES of a batch of PUBLISHED rows."""
    bound_batches(messages)
    cut = partial(cut_messages, conflation=keeping.asked, shards=keeping.shards)
    blocks = messages.mapInArrow(cut, ROWS)
    return _conflated(blocks.union(_roll_call(messages.sparkSession, keeping)), keeping)


def ended(spark: SparkSession, keeping: Keeping) -> DataFrame:
    """DELIVERIES of all that is held."""
    return _conflated(_roll_call(spark, keeping), keeping)


def conflate_shards(
    batches: Iterator[pa.RecordBatch], keeping: Keeping
) -> Iterator[pa.RecordBatch]:
    """The shards of one task, whose blocks come in order."""
    for number, blocks in groupby(unpacked(batches), lambda block: block.stream):
        if number == REFUSED:
            yield from map(refused, map(Messages.set_aside, blocks))
            continue
        shard = keeping.opened(number)
        for block in blocks:
            yield from shard.add(Messages.of_block(block), block.keys)
        yield from shard.finish() if keeping.batch.is_end else shard.close()
        keeping.close(number, shard)


def _conflated(blocks: DataFrame, keeping: Keeping) -> DataFrame:
    in_order = blocks.repartition(keeping.shards, "stream").sortWithinPartitions(*ORDER)
    return in_order.mapInArrow(partial(conflate_shards, keeping=keeping), DELIVERIES)


def _roll_call(spark: SparkSession, keeping: Keeping) -> DataFrame:
    """An empty block for each shard."""
    blocks: list[Block] = [
        NOTHING.block(number, NONE.astype(np.bool_), [], NONE) for number in range(keeping.shards)
    ]
    return spark.createDataFrame([block.row_of_spark() for block in blocks], ROWS)
