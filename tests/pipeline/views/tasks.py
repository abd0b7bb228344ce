"""A view as Spark's tasks work on it, a shard after the other, without Spark."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pipeline.columns.blocks import shard_of
from pipeline.columns.rows import SENT, arrow_schema
from pipeline.views.groups import Groups
from pipeline.views.records import Records, View

ARROW_SENT = arrow_schema(SENT)


class Message(NamedTuple):
    """A record's newest text, or with none its removal."""

    key: str
    body: bytes | None


class Told(NamedTuple):
    """A row of a group: its value, or why it is gone; and how many messages it stands for."""

    value: bytes | None
    removed: str | None
    messages: int


def changes(messages: list[Message], begin: int = 1) -> pa.Table:
    """The newest message of each record, in order of publication, as `SENT`."""
    newest: dict[str, dict[str, object]] = {}
    for position, (key, body) in enumerate(messages, begin):
        earlier = newest.pop(key, None)
        newest[key] = {
            "key": key,
            "file": "",
            "block": 0,
            "position": position,
            "value": body,
            "messages": 1 if earlier is None else earlier["messages"] + 1,  # type: ignore[operator]  # a number
            "first_ms": position,
            "removed": "deleted" if body is None else None,
        }
    return pa.Table.from_pylist(list(newest.values()), schema=ARROW_SENT)


class Tasks:
    """All tasks of a view; what they hold goes through files' bytes after each batch."""

    def __init__(self, view: View, shards: int) -> None:
        self._view = view
        self._shards = shards
        self._records: list[pa.Table | None] = [None] * shards
        self._groups: list[pa.Table | None] = [None] * shards
        self._batch = 0
        self._position = 1

    def batch(self, messages: list[Message]) -> dict[str, Told]:
        """One micro-batch; the rows by group."""
        parts = []
        everything = changes(messages, self._position)
        for shard in range(self._shards):
            records = Records(self._view, shard, self._shards, self._records[shard])
            parts.append(
                records.change(_chosen(everything, "key", shard, self._shards), self._batch)
            )
            self._records[shard] = _stored(records.table)
        self._batch += 1
        self._position += len(messages)
        found: dict[str, Told] = {}
        for shard in range(self._shards):
            groups = Groups(self._view.projection, self._groups[shard])
            table = pa.Table.from_batches(parts)
            here = [home == shard for home in table.column("home").to_pylist()]
            rows = groups.change(table.filter(pa.array(here, pa.bool_())))
            self._groups[shard] = _stored(groups.table)
            for row in rows.to_pylist():
                assert row["key"] not in found
                found[row["key"]] = Told(row["value"], row["removed"], row["messages"])
        return found


def _chosen(table: pa.Table, name: str, shard: int, shards: int) -> pa.Table:
    here = [shard_of(text, shards) == shard for text in table.column(name).to_pylist()]
    return table.filter(pa.array(here, pa.bool_()))


def _stored(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return pa.ipc.open_file(sink.getvalue()).read_all()
