"""Which way a conflation goes: the cheapest that is correct for where its messages stand.

    latest     one batch is one interval (processing time): combined where the messages are, then
               winners by key; without the shuffle where each partition has keys of its own
    in place   recorded messages that are one partition, or one for each set of keys: no shuffle
    by shards  recorded messages in several partitions: columns shuffled as blocks, the interval
               found where all messages of a key are (with `pace=batch`: where all are)

None of them keeps state inside Spark: what spans blocks is a row for each key that is held, in
the task that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from keys.spec import KeySpec
from pipeline.columns.blocks import ORDER, ROWS
from pipeline.columns.conflation import Conflation
from pipeline.columns.deliveries import conflate_blocks, conflate_in_place, cut_messages
from pipeline.columns.intervals import Pace
from pipeline.columns.rows import DELIVERIES, SENT, arrow_schema
from pipeline.streams.latest import COMBINED, combine_messages, conflated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.conf import RuntimeConfig

ROWS_PER_BLOCK_MAX = 50_000
BATCH_BYTES_MAX = 64 * 1024 * 1024


class Way(StrEnum):
    """How a plan goes about it."""

    LATEST = "latest"
    IN_PLACE = "in place"
    BY_SHARDS = "by shards"


class Layout(StrEnum):
    """What partitions have of the messages: any of them, or all that there are of some keys."""

    ANY = "any"
    BY_KEY = "by key"


@dataclass(frozen=True, slots=True)
class ConflationPlan:
    """A way, and the frame that goes it."""

    way: Way
    frame: DataFrame


def plan_latest(
    messages: DataFrame, spec: KeySpec, *, are_checked: bool, layout: Layout = Layout.ANY
) -> ConflationPlan:
    """The newest of each key of a batch: SENT rows of PUBLISHED ones."""
    if layout is Layout.ANY:
        return ConflationPlan(Way.LATEST, conflated(messages, spec, are_checked=are_checked))
    combine = partial(combine_messages, spec=spec, are_checked=are_checked)
    combined = messages.mapInArrow(combine, COMBINED)
    return ConflationPlan(Way.IN_PLACE, combined.select(*arrow_schema(SENT).names))


def plan_recorded(
    messages: DataFrame, conflation: Conflation, layout: Layout = Layout.ANY
) -> ConflationPlan:
    """The deliveries of recorded messages; `PUBLISHED` rows in, `DELIVERIES` out.

    With `Layout.BY_KEY` a partition's clock is that of its own messages: their times must not run
    back.
    """
    by_key = conflation.interval.pace is Pace.KEY
    if (by_key and layout is Layout.BY_KEY) or messages.rdd.getNumPartitions() == 1:
        return ConflationPlan(Way.IN_PLACE, in_place(messages, conflation))
    return ConflationPlan(Way.BY_SHARDS, by_shards(messages, conflation))


def in_place(messages: DataFrame, conflation: Conflation) -> DataFrame:
    """Each partition by itself."""
    _bound_batches(messages)
    return messages.mapInArrow(partial(conflate_in_place, conflation=conflation), DELIVERIES)


def by_shards(messages: DataFrame, conflation: Conflation) -> DataFrame:
    """Blocks to where all messages of a key are; with `pace=batch` all messages."""
    partitions = int(_bound_batches(messages).get("spark.sql.shuffle.partitions") or 1)
    shards = partitions if conflation.interval.pace is Pace.KEY else 1
    cut = partial(cut_messages, conflation=conflation, shards=shards)
    blocks = messages.mapInArrow(cut, ROWS).repartition(partitions, "stream")
    in_order = blocks.sortWithinPartitions(*ORDER)
    return in_order.mapInArrow(partial(conflate_blocks, conflation=conflation), DELIVERIES)


def recorded_lines(lines: DataFrame) -> DataFrame:
    """The lines of a history (`pipeline.columns.history.SCHEMA`) as recorded messages."""
    return lines.selectExpr(
        "file",
        "block",
        "CAST(NULL AS LONG) AS position",
        "time_ms",
        "CAST(NULL AS STRING) AS key",
        "line AS body",
    )


def _bound_batches(messages: DataFrame) -> RuntimeConfig:
    """Blocks large enough for columns to pay, small enough for a worker's memory."""
    settings = messages.sparkSession.conf
    settings.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_PER_BLOCK_MAX)
    settings.set("spark.sql.execution.arrow.maxBytesPerBatch", BATCH_BYTES_MAX)
    return settings
