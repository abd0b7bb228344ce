"""The batches of a view: what changed in its sources, and what its stages keep of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.blocks import as_published
from tidegate.pipeline.columns.rows import (
    PUBLISHED,
    SENT,
    arrow_schema,
    bound_batches,
    shuffle_partitions,
)
from tidegate.pipeline.definitions.stream import StreamDefinition
from tidegate.pipeline.definitions.view import JoinDefinition, ViewDefinition
from tidegate.pipeline.sinks.sink import Batch
from tidegate.pipeline.sinks.tasks import task_attempt
from tidegate.pipeline.sources.source import open_source
from tidegate.pipeline.streams.batches import asked_of
from tidegate.pipeline.streams.shard_state import SHARDS, ShardState
from tidegate.pipeline.views.groups import View, newest_records
from tidegate.pipeline.views.joins import Join, Side
from tidegate.pipeline.views.stages import ViewBatch, view_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class HeldTables:
    """The tables that the stages of a view keep; `folder` has a `ShardState` for each stage."""

    folder: Path
    batch: Batch
    shards: int

    def read(self, stage: str, shard: int) -> pa.Table | None:
        """Return what a shard kept at the batch before; None at the first.

        Raises:
            CheckpointUnusable: it is not there, or cannot be read.
        """
        held = ShardState(self.folder / stage)
        label = held.before(self.batch)
        return None if label is None else held.read(label, shard)

    def write(self, stage: str, shard: int, table: pa.Table) -> None:
        """Keep a table for the next batch."""
        noted = table.replace_schema_metadata({SHARDS: str(self.shards)})
        ShardState(self.folder / stage).write(self.batch.label, shard, noted, task_attempt())


class ViewBatches:
    """Computes the batches of a definition with a view.

    Raises:
        CheckpointUnusable: from `rows`, if what the batch before kept is missing.
    """

    # A view sends each change with the batch that read it: no key waits, and nothing is left to
    # send at the end.
    held_keys = None
    merger_failures = None

    def __init__(self, definition: StreamDefinition, view: ViewDefinition) -> None:
        self._folder = definition.checkpoint / "held"
        self._interval_ms = definition.interval_ms
        self._sides = _sides(definition, view)
        self._view = None
        if view.projection is not None:
            topic = definition.source.topic or ""
            self._view = View(view.projection, None if view.join else view.filter, topic)
        self._join = None if view.join is None else _join(view, view.join, self._sides)

    @property
    def trigger_ms(self) -> int:
        """Milliseconds between triggers: the interval, because each batch is one."""
        return self._interval_ms

    @property
    def is_paced(self) -> bool:
        """True: each batch is one interval."""
        return True

    def open(self, spark: SparkSession) -> DataFrame:
        """Return the messages of its sources (`PUBLISHED`), and the `side` of each."""
        # One query over both sources, so that a batch has one state of each.
        frames = [
            as_published(open_source(spark, side)).selectExpr("*", f"{at} AS side")
            for at, side in enumerate(self._sides)
        ]
        return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])

    def rows(self, messages: DataFrame, batch: Batch) -> DataFrame:
        """Return SENT rows of a batch of messages as `open` gives them."""
        changed = [self._changed_records(messages, at) for at in range(len(self._sides))]
        shards = self._shards(messages, batch)
        tables = HeldTables(self._folder, batch, shards)
        view_batch = ViewBatch(self._view, self._join, batch.number, shards, tables)
        return view_rows(changed[0], changed[1] if self._join else None, view_batch)

    def forget(self, batch: Batch) -> None:
        """Remove what no batch from this one on needs."""
        for path in self._folder.iterdir():
            ShardState(path).forget(batch.number)

    def _changed_records(self, messages: DataFrame, side: int) -> DataFrame:
        """Return the newest of each record of a side that a task has seen, removals too."""
        definition = self._sides[side]
        # A removal has no body, so the source's key is all that names its record. With a message it
        # must not hide the fields of record_key.
        columns = arrow_schema(PUBLISHED).names
        if definition.key:  # messages have it in their fields; a removal has nothing else
            columns[columns.index("key")] = "CASE WHEN body IS NULL THEN key END AS key"
        mine = messages.where(f"side = {side}").selectExpr(*columns)
        bound_batches(mine)
        return mine.mapInArrow(partial(newest_records, asked=asked_of(definition)), SENT)

    def _shards(self, messages: DataFrame, batch: Batch) -> int:
        """Return the number of shards: as before, or one for each task of a shuffle."""
        new = shuffle_partitions(messages.sparkSession)
        # Any stage will do: all of a batch's stages have as many shards.
        held = ShardState(self._folder / ("groups" if self._view else "pairs"))
        return held.shards(held.before(batch), new)


def _sides(definition: StreamDefinition, view: ViewDefinition) -> list[StreamDefinition]:
    """Return the definition for each source, with the fields that identify its records as key."""
    own = definition.key if view.projection is None else view.record_key
    sides = [replace(definition, key=own or KeySpec())]
    if view.join is not None:
        right = view.join.record_key or KeySpec()
        sides.append(replace(definition, source=view.join.source, key=right))
    return sides


def _join(view: ViewDefinition, join: JoinDefinition, sides: list[StreamDefinition]) -> Join:
    topics = tuple(side.source.topic or "" for side in sides)
    left, right = topics[Side.LEFT], topics[Side.RIGHT]
    return Join(join.on, join.place, (view.filter, join.filter), (left, right))
