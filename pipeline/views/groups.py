"""The groups of a view in one task: parts come in, and a row goes out for each that was stirred."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.errors import KeyInvalid
from tidegate.keys.jsontext import items
from tidegate.keys.projection import Projection
from tidegate.keys.spec import canonical_scalar
from tidegate.pipeline.views.partials import NEWEST, Parts, parts_of
from tidegate.pipeline.views.records import ARROW_SENT, UNMATCHED

HELD = pa.schema(
    [("key", pa.string()), ("shard", pa.int64()), ("records", pa.int64()), ("part", pa.binary())]
)
PLACE = ("file", "block", "position")

Shares = dict[int, dict[str, Any]]
"""By shard what a group's records there come to."""


class Groups:
    """The groups of one shard, kept from batch to batch as a table (`HELD`)."""

    def __init__(self, projection: Projection, held: pa.Table | None) -> None:
        self._projection = projection
        fields: list[Parts] = [NEWEST] * len(projection.grouping.paths)
        self._ways = fields + [parts_of(column) for column in projection.columns]
        self.table = HELD.empty_table() if held is None else held

    def change(self, parts: pa.Table) -> pa.RecordBatch:
        """Take parts (`PARTS`) of groups that were stirred; their rows, `SENT`.

        A group that has no record any more is gone; one that never had any is not told of. A row
        whose key cannot be a record's is refused.
        """
        stirred: dict[str, list[dict[str, Any]]] = {}
        for part in parts.to_pylist():
            stirred.setdefault(part["key"], []).append(part)
        is_stirred = pc.is_in(self.table.column("key"), pa.array(stirred, pa.string()))
        shares: dict[str, Shares] = {}
        for share in self.table.filter(is_stirred).to_pylist():
            shares.setdefault(share["key"], {})[share["shard"]] = share
        rows, kept = [], []
        for group, news in stirred.items():
            before = shares.get(group, {})
            now = {**before, **{part["shard"]: part for part in news}}
            there = [share for share in now.values() if share["records"]]
            kept += there
            if there or before:
                rows += self._told(self._row(group, news, there))
        others = self.table.filter(pc.invert(is_stirred))
        self.table = pa.concat_tables([others, _table(kept)]).combine_chunks()
        return pa.RecordBatch.from_pylist(rows, schema=ARROW_SENT)

    def _told(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """The row; refused where its key is none that a record can have, a removal then nothing."""
        paths = self._projection.grouping.paths
        for path, text in zip(paths, items(row["key"].encode()) or (), strict=True):
            try:
                canonical_scalar(bytes(text))
            except KeyInvalid as error:
                reason = f"{error.code}: {path}: {error.detail}"
                return [{**row, "key": None, "refused": reason}] if row["value"] else []
        return [row]

    def _row(
        self, group: str, news: list[dict[str, Any]], there: list[dict[str, Any]]
    ) -> dict[str, Any]:
        last = max(news, key=lambda part: tuple(part[name] for name in PLACE))
        times = [part["first_ms"] for part in news if part["first_ms"] is not None]
        return {
            "key": group,
            **{name: last[name] for name in PLACE},
            "value": self._value(there) if there else None,
            "messages": sum(part["messages"] for part in news),
            "first_ms": min(times, default=None),
            "removed": None if there else last["removed"] or UNMATCHED,
        }

    def _value(self, shares: list[dict[str, Any]]) -> bytes:
        columns = zip(*(msgspec.msgpack.decode(share["part"]) for share in shares), strict=True)
        texts = [way.shown(column) for way, column in zip(self._ways, columns, strict=True)]
        fields = len(self._projection.grouping.paths)
        return self._projection.assembled(texts[:fields], texts[fields:])


def _table(shares: list[dict[str, Any]]) -> pa.Table:
    rows = [{name: share[name] for name in HELD.names} for share in shares]
    return pa.Table.from_pylist(rows, schema=HELD)
