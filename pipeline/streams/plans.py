"""Which way a conflation goes: the cheapest that is correct for what is asked of it.

Of a running stream (`way_of`):
    latest     a batch is an interval: combined where the messages are, then a row for each key
    held       by key in processing time, or removals told: what is held goes from batch to batch;
               with a registered merger too, which is to see a key's messages one after the other
    timed      event time: messages wait for the watermark in the shard of their key

Of recorded messages (`plan_recorded`):
    in place   they are one partition, or one for each set of keys: no shuffle
    by shards  columns shuffled as blocks, the interval found where all messages of a key are (with
               `pace=batch`: where all are)

None of them keeps state inside Spark: what spans blocks or batches is a row for each key that is
held, in the task that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from tidegate.pipeline.columns.blocks import ORDER, ROWS
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.deliveries import (
    combine,
    conflate_blocks,
    conflate_in_place,
    cut_messages,
    merge,
)
from tidegate.pipeline.columns.intervals import Pace
from tidegate.pipeline.columns.rows import DELIVERIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.conf import RuntimeConfig

BOUNDS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
}


class PlanKind(StrEnum):
    """How a plan goes about it."""

    LATEST = "latest"
    HELD = "held"
    TIMED = "timed"
    IN_PLACE = "in place"
    BY_SHARDS = "by shards"


class Layout(StrEnum):
    """What partitions have of the messages: any of them, or all that there are of some keys."""

    ANY = "any"
    BY_KEY = "by key"


@dataclass(frozen=True, slots=True)
class ConflationPlan:
    """A way, and the frame that goes it."""

    way: PlanKind
    frame: DataFrame


def way_of(asked: Conflation) -> PlanKind:
    """The way of a running stream."""
    if asked.time is not None:
        return PlanKind.TIMED
    if asked.interval.pace is Pace.KEY or asked.tells_removals or asked.merger:
        return PlanKind.HELD
    return PlanKind.LATEST


def plan_latest(
    messages: DataFrame, asked: Conflation, layout: Layout = Layout.ANY
) -> ConflationPlan:
    """What one batch comes to: DELIVERIES of PUBLISHED rows."""
    rows = messages.mapInArrow(partial(combine, conflation=asked), DELIVERIES)
    by_key = rows if layout is Layout.BY_KEY else rows.repartition("key")
    in_order = by_key.sortWithinPartitions("file", "block", "position")
    merged = in_order.mapInArrow(partial(merge, conflation=asked), DELIVERIES)
    return ConflationPlan(PlanKind.IN_PLACE if layout is Layout.BY_KEY else PlanKind.LATEST, merged)


def plan_recorded(
    messages: DataFrame, asked: Conflation, layout: Layout = Layout.ANY
) -> ConflationPlan:
    """The deliveries of recorded messages: DELIVERIES of PUBLISHED rows.

    With `Layout.BY_KEY` a partition's clock is that of its own messages: their times must not run
    back.
    """
    by_key = asked.interval.pace is Pace.KEY
    if (by_key and layout is Layout.BY_KEY) or messages.rdd.getNumPartitions() == 1:
        return ConflationPlan(PlanKind.IN_PLACE, in_place(messages, asked))
    return ConflationPlan(PlanKind.BY_SHARDS, by_shards(messages, asked))


def in_place(messages: DataFrame, asked: Conflation) -> DataFrame:
    """Each partition by itself."""
    bound_batches(messages)
    return messages.mapInArrow(partial(conflate_in_place, conflation=asked), DELIVERIES)


def by_shards(messages: DataFrame, asked: Conflation) -> DataFrame:
    """Blocks to where all messages of a key are; with `pace=batch` all messages."""
    partitions = int(bound_batches(messages).get("spark.sql.shuffle.partitions") or 1)
    shards = partitions if asked.interval.pace is Pace.KEY else 1
    cut = partial(cut_messages, conflation=asked, shards=shards)
    blocks = messages.mapInArrow(cut, ROWS).repartition(partitions, "stream")
    in_order = blocks.sortWithinPartitions(*ORDER)
    return in_order.mapInArrow(partial(conflate_blocks, conflation=asked), DELIVERIES)


def recorded_lines(lines: DataFrame) -> DataFrame:
    """The lines of a history (`tidegate.pipeline.columns.history.SCHEMA`) as recorded messages."""
    return lines.selectExpr(
        "file",
        "block",
        "CAST(NULL AS LONG) AS position",
        "time_ms",
        "CAST(NULL AS STRING) AS key",
        "line AS body",
        "CAST(NULL AS STRING) AS removed",
        "CAST(NULL AS STRING) AS refused",
    )


def bound_batches(messages: DataFrame) -> RuntimeConfig:
    """Blocks large enough for columns to pay, small enough for a worker's memory."""
    settings = messages.sparkSession.conf
    for name, bound in BOUNDS.items():
        # Spark's other threads read the settings: they are not to change with every batch.
        if settings.get(name) != bound:
            settings.set(name, bound)
    return settings
