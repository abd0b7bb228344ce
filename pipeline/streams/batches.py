"""The batches of a stream that is not a view: how each is conflated, and how a stream ends."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intake import combine, merge
from tidegate.pipeline.columns.rows import DELIVERIES, shuffle_partitions
from tidegate.pipeline.columns.saving import FAILURES, KEYS
from tidegate.pipeline.connection import gateway_at
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.definitions.stream import StreamDefinition, TopicSink
from tidegate.pipeline.errors import CheckpointUnusable, DefinitionInvalid
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.sinks.sink import END, Batch
from tidegate.pipeline.sinks.topic import COALESCE_PARTITIONS_MAX
from tidegate.pipeline.sources.source import are_checked, open_source
from tidegate.pipeline.streams.shard_state import ShardBatch, ShardState, conflated, conflated_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE_BYTES_MAX = 1024 * 1024  # the gateway's default for a message, which would refuse longer ones
PARTS_PER_INTERVAL = 10  # a row goes out at most a tenth of an interval late
# Each batch has a fixed cost, even an empty one; with more than a second rows would grow old.
TRIGGER_MS_MIN, TRIGGER_MS_MAX = 50, 1_000


class PlanKind(StrEnum):
    """How a running stream conflates: the cheapest plan that is correct for its definition.

    No plan keeps state inside Spark. State that spans batches is one row for each held key, in the
    task that reads that key's messages.
    """

    LATEST = "latest"
    """A batch is an interval: combine where the messages are, then merge the rows of each key."""

    HELD = "held"
    """Each key has its own interval, or removals are sent, or a merger needs the messages of a
    key in order: held rows go from batch to batch."""

    TIMED = "timed"
    """Event time: messages wait for the watermark in the shard of their key."""


def plan_of(asked: Conflation, *, is_timed: bool) -> PlanKind:
    """Return the plan of a running stream; `is_timed`: in event time."""
    if is_timed:
        return PlanKind.TIMED
    # A removal is sent only if its record existed, maybe since an earlier batch; and a merger may
    # decline to merge with what an earlier batch held.
    if asked.interval.pace is Pace.KEY or asked.sends_removals or asked.merger:
        return PlanKind.HELD
    return PlanKind.LATEST


def plan_latest(messages: DataFrame, asked: Conflation, tasks: int) -> DataFrame:
    """Return DELIVERIES of one batch of PUBLISHED rows, merged by so many tasks.

    Only one row for each key and task is shuffled, not the messages.
    """
    rows = messages.mapInArrow(partial(combine, conflation=asked), DELIVERIES)
    # By key, so that one task sees all rows of it; sorted, for the last of them is the newest.
    in_order = rows.repartition(tasks, "key").sortWithinPartitions("file", "block", "position")
    return in_order.mapInArrow(partial(merge, conflation=asked), DELIVERIES)


class ConflatedBatches:
    """Conflates the batches of a definition.

    Raises:
        CheckpointUnusable: from `rows`, if what the batch before held is missing.
    """

    def __init__(self, definition: StreamDefinition) -> None:
        self._definition = definition
        self._held = ShardState(definition.checkpoint / "held")
        self._asked = asked_of(definition)
        self.plan = plan_of(self._asked, is_timed=definition.conflation.time is not None)

    @property
    def trigger_ms(self) -> int:
        """Milliseconds between triggers: the interval, or a part of it for rows due in between."""
        interval_ms = self._definition.interval_ms
        if self.is_paced:
            return interval_ms
        return max(TRIGGER_MS_MIN, min(interval_ms // PARTS_PER_INTERVAL, TRIGGER_MS_MAX))

    @property
    def held_keys(self) -> int | None:
        """How many keys wait for the end of their interval; None where a batch is an interval."""
        return None if self.plan is PlanKind.LATEST else self._held.total(KEYS)

    @property
    def merger_failures(self) -> int | None:
        """How often its merger has failed since its checkpoint began; None where it has none."""
        return self._held.total(FAILURES) if self._asked.merger else None

    @property
    def is_paced(self) -> bool:
        """True if each batch is one interval: in processing time with `pace=batch`."""
        return self.plan is not PlanKind.TIMED and self._asked.interval.pace is Pace.BATCH

    def open(self, spark: SparkSession) -> DataFrame:
        """Return the messages of its source, with a clock if keys may be due in silence.

        Raises:
            PipelineError: the source is not as the definition says, or has another key while
                removals are sent.
        """
        if self._asked.sends_removals:
            _require_own_key(self._definition)
        messages = open_source(spark, self._definition)
        # With pace=batch a batch is an interval: nothing is due between two batches.
        if self.plan is PlanKind.HELD and not self.is_paced:
            from tidegate.pipeline.streams.clock import due_batches

            # Of blocks, which tasks read, the clock has no columns; nor has it rows.
            clock = due_batches(spark, self._held)
            messages = messages.unionByName(clock, allowMissingColumns=True)
        return messages

    def rows(self, messages: DataFrame, batch: Batch) -> DataFrame:
        """Return DELIVERIES of a batch."""
        if self.plan is PlanKind.LATEST:
            tasks = shuffle_partitions(messages.sparkSession)
            # The one task of a topic would run few others one by one.
            few = isinstance(self._definition.sink, TopicSink) and tasks <= COALESCE_PARTITIONS_MAX
            return plan_latest(messages, self._asked, 1 if few else tasks)
        return conflated(messages, self._shard_batch(messages.sparkSession, batch))

    def forget(self, batch: Batch) -> None:
        """Remove what was held before the batch before."""
        # Not the last one: Spark repeats a batch whose end it has not noted, from the same state.
        self._held.forget(batch.number)

    @property
    def unended(self) -> int | None:
        """The last batch, if what was held after it has not gone out."""
        last = None if self.plan is PlanKind.LATEST else self._held.last_number
        return None if last == self._held.ended else last

    @property
    def is_ending(self) -> bool:
        """True if an end was begun and not noted as done."""
        last = self._held.last
        return self.unended is not None and last is not None and last.name.endswith(END)

    def ended(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """Return DELIVERIES of all that is held after the last batch, as a batch after it."""
        return conflated_end(spark, self._shard_batch(spark, batch))

    def note_end(self, batch: Batch) -> None:
        """Note that what was held has gone out: the next batch continues from there."""
        self._held.end(batch.number)

    def _shard_batch(self, spark: SparkSession, batch: Batch) -> ShardBatch:
        before = self._held.before(batch)
        # pace=batch has one interval for all keys, so one shard must see all of them.
        shares = self.plan is PlanKind.TIMED and self._asked.interval.pace is Pace.BATCH
        partitions = shuffle_partitions(spark)
        return ShardBatch(
            asked=self._asked,
            held=self._held,
            batch=batch,
            before=before,
            shards=self._held.shards(before, 1 if shares else partitions),
            now_ms=None if self.plan is PlanKind.TIMED else self._now_ms(batch),
        )

    def _now_ms(self, batch: Batch) -> int:
        """Return the time of a batch from Spark's own log: the same if the batch is repeated."""
        return batch_time_ms(self._definition.checkpoint / "spark", batch.number)


def asked_of(definition: StreamDefinition) -> Conflation:
    """Return what a definition asks for, in terms of columns."""
    wanted = definition.conflation
    return Conflation(
        key=definition.key,
        interval=Interval(definition.interval_ms * MILLISECOND_NS, wanted.pace),
        time=wanted.time.field if wanted.time else None,
        filter=wanted.filter,
        reduce=wanted.reduce,
        merger=wanted.merger,
        sends_removals=wanted.oof,
        topic=definition.source.topic or "",
        lateness_ns=wanted.time.watermark_ms * MILLISECOND_NS if wanted.time else 0,
        sets_aside=True,
        line_bytes_max=None if are_checked(definition) else LINE_BYTES_MAX,
    )


def _require_own_key(definition: StreamDefinition) -> None:
    """Require the topic's key: a removal names its record by it."""
    source = definition.source
    if not isinstance(source, TopicSource):
        return
    with gateway_at(source.gateway(definition.gateway)) as gateway:
        found = gateway.find_topic(source.topic) or {}
    own = [str(path) for path in definition.key.paths]
    if found.get("key", own) != own:
        raise DefinitionInvalid(
            f"{definition.name}: oof needs the key of topic {source.topic}, which is "
            f"{found['key']}, the stream's is {own}"
        )


def batch_time_ms(spark_folder: Path, number: int) -> int:
    """Return the time of a batch in Spark's log of offsets, which precedes the batch.

    Raises:
        CheckpointUnusable: the log does not say.
    """
    # The second line of Spark's log has the batch's metadata, the first only a version.
    path = spark_folder / "offsets" / str(number)
    try:
        notes = path.read_bytes().split(b"\n")[1]
        return int(msgspec.json.decode(notes)["batchTimestampMs"])
    except (OSError, IndexError, KeyError, TypeError, ValueError):
        raise CheckpointUnusable(f"{path} does not contain the time of its batch") from None
