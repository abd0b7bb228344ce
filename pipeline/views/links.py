"""Joins of two topics on equal fields: what a record is joined by, and what the two come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.filter import Filter
from tidegate.keys.jsontext import (
    Members,
    canonical_number,
    is_number,
    members,
    placed,
    string,
    written,
)
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import read_fields
from tidegate.pipeline.columns.blocks import shard_of
from tidegate.pipeline.columns.filtering import BatchFilter
from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.views.records import UNMATCHED

LinkOf = Callable[[bytes], str | None]


class Side(IntEnum):
    """Of which topic a record is."""

    LEFT = 0
    RIGHT = 1


@dataclass(frozen=True, slots=True)
class Join:
    """Each left record with the right ones of equal fields, or with none (AMPS: left outer).

    `on` are pairs of fields, left and right; a right record stands in the joined one at `place`.
    `filters` are judged before anything is joined.
    """

    on: tuple[tuple[FieldPath, FieldPath], ...]
    place: FieldPath
    filters: tuple[Filter | None, Filter | None] = (None, None)
    topics: tuple[str, str] = ("", "")

    def link_of(self, side: Side) -> LinkOf:
        """`record -> the text by which it is joined`, None where it is joined with nothing."""
        fields_of = read_fields(tuple(pair[side] for pair in self.on))

        def link_of(record: bytes) -> str | None:
            texts = [_plain(field) for field in fields_of(record)]
            if any(text is None for text in texts):
                return None
            return msgspec.json.encode(texts).decode()

        return link_of

    def joined(self, left: bytes, right: bytes | None) -> bytes:
        """The left record with the right one in its place, which is empty without one."""
        fields: Members = members(left) or {}
        return written(placed(fields, tuple(map(str, self.place.steps)), right))


def _plain(field: bytes | None) -> str | None:
    """What a field says as a text (AMPS compares strings); None where it is NULL, or no scalar."""
    if field is None or field == b"null" or field[:1] in b"{[":
        return None
    if is_number(field):
        return canonical_number(field)
    said = string(field)
    return field.decode() if said is None else said or None


# Where records of a join belong: to the task of their link, which is told when that changes.


ROUTED = f"{SENT}, side long, link string, moved long, home long"
ARROW_ROUTED = arrow_schema(ROUTED)
HELD = pa.schema([("key", pa.string()), ("link", pa.string())])
ALONE = "\0"


class Routes:
    """The links of one side's records in one shard, kept from batch to batch (`HELD`)."""

    def __init__(self, join: Join, side: Side, shards: int, held: pa.Table | None) -> None:
        self._side, self._shards = side, shards
        wanted = join.filters[side]
        self._filter = None if wanted is None else BatchFilter(wanted, join.topics[side])
        self._link_of: LinkOf = join.link_of(side)
        self.table = HELD.empty_table() if held is None else held

    def change(self, changes: pa.Table) -> pa.RecordBatch:
        """Take the newest of each record that changed (`SENT`); what links are told (`ROUTED`).

        One that has moved is gone (`moved`) from its old link, and counts no message there.
        """
        keys = changes.column("key").combine_chunks()
        is_changed = pc.is_in(self.table.column("key"), keys)
        known = self.table.filter(is_changed).to_pylist()
        before = {row["key"]: row["link"] for row in known}
        rows: list[dict[str, Any]] = []
        now: dict[str, str] = {}
        for change in self._matching(changes):
            record = change["key"]
            link = None if change["value"] is None else self._link(record, change["value"])
            old = before.get(record)
            if link is not None:
                now[record] = link
                rows.append(self._row(change, link))
            if old is not None and old != link:
                moved = link is not None
                gone = {**change, "value": None}
                if moved:
                    gone |= {"messages": 0, "first_ms": None}
                rows.append(self._row(gone, old, moved=moved))
        kept = self.table.filter(pc.invert(is_changed))
        fresh = pa.table([list(now), list(now.values())], schema=HELD)
        self.table = pa.concat_tables([kept, fresh]).combine_chunks()
        return pa.RecordBatch.from_pylist(rows, schema=ARROW_ROUTED)

    def _matching(self, changes: pa.Table) -> list[dict[str, Any]]:
        """The changes; a record that does not match is gone."""
        rows: list[dict[str, Any]] = changes.to_pylist()
        puts = [row for row in rows if row["value"] is not None]
        if self._filter is not None and puts:
            bodies, keys = [row["value"] for row in puts], [row["key"] for row in puts]
            for row, matches in zip(puts, self._filter.matching(bodies, keys), strict=True):
                if not matches:
                    row |= {"value": None, "removed": UNMATCHED}
        return rows

    def _link(self, record: str, body: bytes) -> str | None:
        """A left record without link is by itself; a right one is nobody's."""
        link = self._link_of(body)
        return ALONE + record if link is None and self._side is Side.LEFT else link

    def _row(self, change: dict[str, Any], link: str, *, moved: bool = False) -> dict[str, Any]:
        home = shard_of(link, self._shards)
        return {**change, "side": int(self._side), "link": link, "moved": int(moved), "home": home}
