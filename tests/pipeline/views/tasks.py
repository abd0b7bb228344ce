"""A view's stages a shard after the other, without Spark; what is kept goes through bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from tidegate.keys.filter import Filter
from tidegate.keys.projection import Projection
from tidegate.pipeline.columns.rows import SENT, arrow_schema, shard_of
from tidegate.pipeline.views.groups import PARTIALS, View
from tidegate.pipeline.views.joins import ROUTED, Join, Side
from tidegate.pipeline.views.stages import CHANGED, ViewBatch

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Message(NamedTuple):
    """A record's newest text, or with none its removal."""

    key: str
    body: bytes | None
    side: Side = Side.LEFT


class SentRow(NamedTuple):
    """A row: its value, or why it is gone; and how many messages it stands for."""

    value: bytes | None
    removed: str | None
    messages: int


def view(projection: str, grouping: str = "[/g]", wanted: str = "") -> View:
    """A view of the topic `px`."""
    found = Projection.parse(projection, 0, grouping, 0)
    return View(found, Filter.parse(wanted) if wanted else None, "px")


class Kept:
    """What stages keep in a batch; the batch before is another one."""

    def __init__(self, before: Kept | None = None) -> None:
        self._before = before.written if before else None
        self.written: dict[tuple[str, int], bytes] = {}

    def read(self, stage: str, shard: int) -> pa.Table | None:
        if self._before is None:
            return None
        return pa.ipc.open_file(pa.py_buffer(self._before[stage, shard])).read_all()

    def write(self, stage: str, shard: int, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        self.written[stage, shard] = sink.getvalue().to_pybytes()


class Tasks:
    """All tasks of a view."""

    def __init__(self, grouped: View | None, shards: int, join: Join | None = None) -> None:
        self._grouped, self._join, self._shards = grouped, join, shards
        self._kept: Kept | None = None
        self._batch = 0
        self._position = 1
        self.refused: list[bytes] = []

    def batch(self, messages: list[Message]) -> dict[str, SentRow]:
        """One micro-batch; the rows by key."""
        self._kept = Kept(self._kept)
        view_batch = ViewBatch(self._grouped, self._join, self._batch, self._shards, self._kept)
        rows = self._changed(messages)
        if self._join is not None:
            rows = self._staged(rows, view_batch.routes, CHANGED, ROUTED)
            last = SENT if self._grouped is None else PARTIALS
            rows = self._staged(rows, view_batch.pairs, ROUTED, last)
        else:
            rows = self._staged(rows, view_batch.records, CHANGED, PARTIALS)
        if self._grouped is not None:
            rows = self._staged(rows, view_batch.groups, PARTIALS, SENT)
        expected: set[str] = set() if self._join is None else {"lefts", "rights", "pairs"}
        expected |= set() if self._grouped is None else {"records", "groups"}
        assert {stage for stage, _ in self._kept.written} == expected
        self._batch += 1
        self._position += len(messages)
        self.refused = [row["value"] for row in rows.to_pylist() if row["refused"]]
        found = [row for row in rows.to_pylist() if not row["refused"]]
        sent = {row["key"]: SentRow(row["value"], row["removed"], row["messages"]) for row in found}
        assert len(sent) == len(found), "a key has two rows"
        return sent

    def _changed(self, messages: list[Message]) -> pa.Table:
        """A row for each message, as tasks would give that have one each."""
        rows = [
            {
                "key": record,
                "file": "",
                "block": 0,
                "position": position,
                "value": body,
                "messages": 1,
                "first_ms": position,
                "removed": "deleted" if body is None else None,
                "side": int(side),
                "home": shard_of(record, self._shards),
            }
            for position, (record, body, side) in enumerate(messages, self._position)
        ]
        return pa.Table.from_pylist(rows[::-1], schema=arrow_schema(CHANGED))

    def _staged(self, rows: pa.Table, stage: Stage, taken: str, given: str) -> pa.Table:
        """Every row to the task of its shard, beside a mark."""
        schema = arrow_schema(taken)
        marks = pa.Table.from_pylist([{"home": at} for at in range(self._shards)], schema=schema)
        marked = pa.concat_tables([rows, marks])
        found: list[pa.RecordBatch] = []
        for shard in range(self._shards):
            here = [home == shard for home in marked.column("home").to_pylist()]
            found += stage(iter(marked.filter(pa.array(here)).to_batches()))
        return pa.Table.from_batches(found, arrow_schema(given))
