"""The stages of a view: what a task does with the rows of its shard, and what it keeps of them.

    records   changed records, by record key        -> partials of the groups that they touch
    groups    partials, by group                    -> a row for each group
    routes    changed records of two topics, by key -> the same, to the task of their link
    pairs     these, by link                        -> joined records, or partials of their groups

The partials of a group are computed where its records are. A stage keeps one table for each shard,
written once in each batch from that of the batch before. Refused rows are passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.views.groups import PARTIALS, Groups, Records, View, newest
from tidegate.pipeline.views.joins import ROUTED, Join, Pairs, Routes, Side

ROUTES = ("lefts", "rights")
CHANGED = f"{SENT}, side long, home long"
"""The newest of a record that one task knows of, and by its key the shard of it."""


# A Protocol, because the tables are those of streams, which import the views.
class Tables(Protocol):
    """The tables that stages keep: of the batch before, and of this one."""

    def read(self, stage: str, shard: int) -> pa.Table | None:
        """Return what a shard kept at the batch before; None at the first."""

    def write(self, stage: str, shard: int, table: pa.Table) -> None:
        """Keep a table for the next batch."""


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """A view at one batch: of one topic, or of two that are joined; grouped, or as joined."""

    view: View | None
    join: Join | None
    batch: int
    shards: int
    tables: Tables

    def records(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn CHANGED into PARTIALS."""
        for shard, rows in _by_shard(batches, CHANGED):
            # First: a dead letter belongs to its batch even if the stage itself has nothing to do.
            yield _refused(rows, PARTIALS)
            yield self._group_partials(shard, newest(_records(rows)))

    def groups(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn PARTIALS into SENT."""
        assert self.view is not None
        for shard, rows in _by_shard(batches, PARTIALS):
            yield _refused(rows, SENT)
            groups = Groups(self.view.projection, self.tables.read("groups", shard))
            yield groups.change(_records(rows))
            self.tables.write("groups", shard, groups.table)

    def routes(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn CHANGED into ROUTED."""
        assert self.join is not None
        for shard, rows in _by_shard(batches, CHANGED):
            yield _refused(rows, ROUTED)
            found = _records(rows)
            for side in Side:
                stage = ROUTES[side]
                routes = Routes(self.join, side, self.shards, self.tables.read(stage, shard))
                mine = found.filter(pc.equal(found.column("side"), int(side)))
                yield routes.change(newest(mine))
                self.tables.write(stage, shard, routes.table)

    def pairs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn ROUTED into PARTIALS, or into SENT without grouping."""
        assert self.join is not None
        for shard, rows in _by_shard(batches, ROUTED):
            yield _refused(rows, SENT if self.view is None else PARTIALS)
            pairs = Pairs(self.join, self.tables.read("pairs", shard))
            joined = pairs.change(_records(rows), grouped=self.view is not None)
            self.tables.write("pairs", shard, pairs.table)
            if self.view is None:
                yield from joined.to_batches()
            else:
                yield self._group_partials(shard, joined)

    def _group_partials(self, shard: int, changes: pa.Table) -> pa.RecordBatch:
        assert self.view is not None
        held = self.tables.read("records", shard)
        records = Records(self.view, shard, self.shards, held)
        partials = records.change(changes, self.batch)
        self.tables.write("records", shard, records.table)
        return partials


def _by_shard(batches: Iterator[pa.RecordBatch], columns: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield a task's rows by shard; a marking row makes every shard appear."""
    schema = arrow_schema(columns)
    # Spark says of some columns that they are never null, of which more is not asked.
    table = pa.Table.from_batches((batch.cast(schema) for batch in batches), schema)
    for shard in pc.unique(table.column("home")).to_pylist():
        yield shard, table.filter(pc.equal(table.column("home"), shard))


def _records(rows: pa.Table) -> pa.Table:
    """Return rows of a record or group, without refused rows and marks."""
    return rows.filter(rows.column("key").is_valid())


def _refused(rows: pa.Table, columns: str) -> pa.RecordBatch:
    """Return the refused rows with other columns; any task may have some."""
    refused = rows.filter(rows.column("refused").is_valid())
    return pa.RecordBatch.from_pylist(refused.to_pylist(), schema=arrow_schema(columns))


# --- the stages on Spark: on executors, with a shuffle of changes between two

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def view_rows(left: DataFrame, right: DataFrame | None, view_batch: ViewBatch) -> DataFrame:
    """Return the SENT rows of a view.

    `left` and, for a join, `right` are SENT rows of the records that changed in a batch, one or
    more for each; where a record has several, the newest counts.
    """
    by_key = f"coalesce(pmod(crc32(CAST(key AS BINARY)), {view_batch.shards}), 0) AS home"
    fresh = left.selectExpr("*", f"CAST({int(Side.LEFT)} AS LONG) AS side", by_key)
    if right is None:
        return _grouped(
            _sharded(fresh, view_batch.records, PARTIALS, view_batch.shards), view_batch
        )
    rights = right.selectExpr("*", f"CAST({int(Side.RIGHT)} AS LONG) AS side", by_key)
    routed = _sharded(fresh.unionByName(rights), view_batch.routes, ROUTED, view_batch.shards)
    if view_batch.view is None:
        return _sharded(routed, view_batch.pairs, SENT, view_batch.shards)
    return _grouped(_sharded(routed, view_batch.pairs, PARTIALS, view_batch.shards), view_batch)


def _grouped(partials: DataFrame, view_batch: ViewBatch) -> DataFrame:
    return _sharded(partials, view_batch.groups, SENT, view_batch.shards)


def _sharded(rows: DataFrame, stage: Stage, columns: str, shards: int) -> DataFrame:
    """Move rows to the tasks of their `home`; each task has a row, so its state is always read."""
    # Without a row a task is not run, and what its shard holds would not be carried on.
    marks = rows.sparkSession.range(shards).withColumnRenamed("id", "home")
    marked = rows.unionByName(marks, allowMissingColumns=True)
    return marked.repartitionById(shards, F.expr("CAST(home AS INT)")).mapInArrow(stage, columns)
