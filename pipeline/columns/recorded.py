"""Recorded messages as the deliveries that the engine makes of them, for use in a notebook.

    messages = read_history(spark, Path("ticks.ndjson.gz"))
    deliveries = conflate_recorded(messages, Conflation(...))

PUBLISHED rows in, or blocks of files: those of one (`file`, `block`) are in order of publication,
and these pairs sort in that order. DELIVERIES out, both as in `rows.py`. The engine's clock shows
the recorded times.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intake import Intake, conflate_blocks, cut_messages
from tidegate.pipeline.columns.rows import (
    DELIVERIES,
    ROWS,
    bound_batches,
    shuffle_partitions,
    to_tasks,
)
from tidegate.pipeline.columns.shard import Shard, refused
from tidegate.pipeline.intervals import Pace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def conflate_recorded(messages: DataFrame, asked: Conflation, *, by_key: bool = False) -> DataFrame:
    """Return the deliveries of recorded messages, with a shuffle only where one is needed.

    Args:
        messages: PUBLISHED rows, or blocks of files (`blocks.BLOCKS`).
        asked: how they are conflated.
        by_key: each partition has all messages of its keys. A partition then has a clock of its
            own, and the times in it must not run back.
    """
    # A single partition has all messages of all keys, whatever the pace.
    has_all = messages.rdd.getNumPartitions() == 1
    if has_all or (by_key and asked.interval.pace is Pace.KEY):
        return in_place(messages, asked)
    return by_shards(messages, asked)


def in_place(messages: DataFrame, asked: Conflation) -> DataFrame:
    """Conflate each partition by itself."""
    bound_batches(messages)
    return messages.mapInArrow(partial(conflate_in_place, conflation=asked), DELIVERIES)


def by_shards(messages: DataFrame, asked: Conflation) -> DataFrame:
    """Shuffle blocks to the shard of their keys and conflate there.

    With `pace=batch` all keys share one interval, so one shard has all messages.
    """
    bound_batches(messages)
    partitions = shuffle_partitions(messages.sparkSession)
    # More shards than tasks would only make more blocks to sort.
    shards = partitions if asked.interval.pace is Pace.KEY else 1
    cut = partial(cut_messages, conflation=asked, shards=shards)
    blocks = to_tasks(messages.mapInArrow(cut, ROWS), partitions)
    return blocks.mapInArrow(partial(conflate_in_shards, conflation=asked), DELIVERIES)


def conflate_in_shards(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """Yield the deliveries of one task's blocks; each shard begins and ends in this task."""
    return conflate_blocks(
        batches, lambda number: Shard(conflation), lambda number, shard: shard.finish()
    )


def conflate_in_place(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """Yield the deliveries of one task's messages: all messages of their keys, in order."""
    shard = Shard(conflation)
    intake = Intake(conflation, shard.conflator.bodies.names)
    for found in intake.messages(batches):
        if found.reasons:
            yield refused(found)
        else:
            yield from shard.add(found, intake.texts)
    yield from shard.finish()
