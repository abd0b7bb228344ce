"""The joined records of one task: all records of some links, of both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.views.links import Join, Side
from tidegate.pipeline.views.records import ARROW_SENT

HELD = pa.schema(
    [
        ("side", pa.int64()), ("link", pa.string()), ("key", pa.string()), ("file", pa.string()),
        ("block", pa.int64()), ("position", pa.int64()), ("value", pa.binary()),
    ]
)  # fmt: skip
ORDER = [("file", "ascending"), ("block", "ascending"), ("position", "ascending")]
APART = "\n"

Row = dict[str, Any]
Rows = dict[str, Row]
"""Records of one side by key, in order of publication."""


@dataclass(slots=True)
class Link:
    """The records of both sides that are joined with each other, and which of them changed."""

    before: tuple[Rows, Rows] = field(default_factory=lambda: ({}, {}))
    changes: tuple[Rows, Rows] = field(default_factory=lambda: ({}, {}))

    def now(self, side: Side) -> Rows:
        """The records as they are after the changes."""
        changes = self.changes[side]
        kept = {name: row for name, row in self.before[side].items() if name not in changes}
        return kept | {name: row for name, row in changes.items() if row["value"] is not None}


class Pairs:
    """The links of one shard, kept from batch to batch as a table (`HELD`)."""

    def __init__(self, join: Join, held: pa.Table | None) -> None:
        self._join = join
        self.table = HELD.empty_table() if held is None else held

    def change(self, routed: pa.Table, *, grouped: bool) -> pa.Table:
        """Take what changed (`ROUTED`); the joined records that it changes (`SENT`).

        By the left record's key, with the newest of the right ones; for `grouped` each pair has
        a row, by both keys. A message counts in one row. Rows are in order of publication.
        """
        links: dict[str, Link] = {}
        for row in routed.sort_by(ORDER).to_pylist():
            links.setdefault(row["link"], Link()).changes[row["side"]][row["key"]] = row
        is_stirred = pc.is_in(self.table.column("link"), pa.array(links, pa.string()))
        for row in self.table.filter(is_stirred).to_pylist():
            links[row["link"]].before[row["side"]][row["key"]] = row
        told = self._of_pairs if grouped else self._of_lefts
        rows = [row for link in links.values() for row in told(link)]
        rows.sort(key=lambda row: (row["file"], row["block"], row["position"]))
        held = [
            {name: row[name] for name in HELD.names}
            for link in links.values()
            for side in Side
            for row in link.now(side).values()
        ]
        others = self.table.filter(pc.invert(is_stirred))
        kept = pa.Table.from_pylist(held, schema=HELD)
        self.table = pa.concat_tables([others, kept]).combine_chunks()
        return pa.Table.from_pylist(rows, schema=ARROW_SENT)

    def _of_lefts(self, link: Link) -> Iterator[Row]:
        """A row for each left record that changed, or whose right ones did."""
        changes, others = link.changes
        rights = list(link.now(Side.RIGHT).values())
        right = rights[-1]["value"] if rights else None
        shared = _Count(others.values())
        for record, left in link.now(Side.LEFT).items():
            if record in changes or others:
                own = _Count([changes[record]] if record in changes else [])
                yield _row(record, left, self._join.joined(left["value"], right), own, shared)
        for record, change in changes.items():
            if change["value"] is None and not change["moved"]:
                yield _row(record, change, None, _Count([change]), shared)

    def _of_pairs(self, link: Link) -> Iterator[Row]:
        """A row for each pair that changed, came or is gone."""
        lefts, rights = link.changes
        own, shared = {name: _Count([row]) for name, row in lefts.items()}, _Count(rights.values())
        before = _paired(link.before[Side.LEFT], link.before[Side.RIGHT])
        now = _paired(link.now(Side.LEFT), link.now(Side.RIGHT))
        for pair, (left, right) in now.items():
            name, right_name = left["key"], right["key"] if right else None
            if name in lefts or right_name in rights or pair not in before:
                value = self._join.joined(left["value"], right["value"] if right else None)
                yield _row(pair, left, value, own.get(name), shared)
        for pair, (left, right) in before.items():
            if pair not in now:
                name, right_name = left["key"], right["key"] if right else ""
                cause = lefts.get(name) or rights.get(right_name)
                gone = {**lefts.get(name, left), "removed": cause["removed"] if cause else None}
                yield _row(pair, gone, None, own.get(name), shared)


class _Count:
    """Messages that count in one row: the first that takes them."""

    def __init__(self, changes: Iterable[Row]) -> None:
        self._left = list(changes)

    def take(self) -> list[Row]:
        """The rows of the messages; from then on none."""
        left, self._left = self._left, []
        return left


def _paired(lefts: Rows, rights: Rows) -> dict[str, tuple[Row, Row | None]]:
    """Each left record with each right one, or with none if there is none."""
    others: list[Row | None] = [*rights.values()] or [None]
    return {
        left["key"] + APART + (right["key"] if right else ""): (left, right)
        for left in lefts.values()
        for right in others
    }


def _row(record: str, left: Row, value: bytes | None, *counts: _Count | None) -> Row:
    counted = [row for count in counts if count is not None for row in count.take()]
    times = [row["first_ms"] for row in counted if row["first_ms"] is not None]
    return {
        "key": record,
        "file": left["file"],
        "block": left["block"],
        "position": left["position"],
        "value": value,
        "messages": sum(row["messages"] for row in counted),
        "first_ms": min(times, default=None),
        "removed": left.get("removed") if value is None else None,
    }
