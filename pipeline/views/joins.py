"""Joins of two topics on equal fields: the links between records, and the joined records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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
    object_text,
    string,
    with_value_at,
)
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import read_fields
from tidegate.pipeline.columns.filtering import BatchFilter
from tidegate.pipeline.columns.rows import SENT, arrow_schema, shard_of
from tidegate.pipeline.views.groups import ARROW_SENT, STOPPED_MATCHING

LinkOf = Callable[[bytes], str | None]


class Side(IntEnum):
    """The side of a join that a record is on."""

    LEFT = 0
    RIGHT = 1


@dataclass(frozen=True, slots=True)
class Join:
    """Each left record with the right ones of equal fields, or with none (AMPS: left outer).

    `on` are pairs of fields, left and right; the right record goes into the field `place`.
    `filters` are judged before anything is joined.
    """

    on: tuple[tuple[FieldPath, FieldPath], ...]
    place: FieldPath
    filters: tuple[Filter | None, Filter | None] = (None, None)
    topics: tuple[str, str] = ("", "")

    def link_of(self, side: Side) -> LinkOf:
        """Return `record -> the text by which it is joined`, None if it is joined with nothing."""
        fields_of = read_fields(tuple(pair[side] for pair in self.on))

        def link_of(record: bytes) -> str | None:
            # As text, so that 1 and "1" are equal, as in AMPS.
            texts = [_plain(field) for field in fields_of(record)]
            if any(text is None for text in texts):
                return None
            return msgspec.json.encode(texts).decode()

        return link_of

    def joined(self, left: bytes, right: bytes | None) -> bytes:
        """Return the left record with the right one in its place, empty without one."""
        fields: Members = members(left) or {}
        return object_text(with_value_at(fields, tuple(map(str, self.place.steps)), right))


def _plain(field: bytes | None) -> str | None:
    """Return a field as a text, as AMPS compares strings; None for NULL and non-scalars."""
    if field is None or field == b"null" or field[:1] in b"{[":
        return None
    if is_number(field):
        return canonical_number(field)
    said = string(field)
    return field.decode() if said is None else said or None


# --- routing: each record belongs to the task of its link, also when the link changes


ROUTED = f"{SENT}, side long, link string, moved long, home long"
ARROW_ROUTED = arrow_schema(ROUTED)
LINKS = arrow_schema("key string, link string")
ALONE = "\0"  # no link begins with it: these are JSON texts


class Routes:
    """The links of one side's records in one shard, kept from batch to batch (`LINKS`)."""

    def __init__(self, join: Join, side: Side, shards: int, held: pa.Table | None) -> None:
        self._side, self._shards = side, shards
        wanted = join.filters[side]
        self._filter = None if wanted is None else BatchFilter(wanted, join.topics[side])
        self._link_of: LinkOf = join.link_of(side)
        self.table = LINKS.empty_table() if held is None else held

    def change(self, changes: pa.Table) -> pa.RecordBatch:
        """Take the newest of each changed record (`SENT`); return rows for their links (`ROUTED`).

        A record that has moved is gone (`moved`) from its old link, and counts no message there.
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
                # The record leaves its old link in the same batch in which it reaches the new one.
                gone = {**change, "value": None}
                if moved:
                    gone |= {"messages": 0, "first_ms": None}
                rows.append(self._row(gone, old, moved=moved))
        kept = self.table.filter(pc.invert(is_changed))
        fresh = pa.table([list(now), list(now.values())], schema=LINKS)
        self.table = pa.concat_tables([kept, fresh]).combine_chunks()
        return pa.RecordBatch.from_pylist(rows, schema=ARROW_ROUTED)

    def _matching(self, changes: pa.Table) -> list[dict[str, Any]]:
        """Return the changes; a record that does not match counts as gone."""
        rows: list[dict[str, Any]] = changes.to_pylist()
        puts = [row for row in rows if row["value"] is not None]
        if self._filter is not None and puts:
            bodies = pa.array([row["value"] for row in puts], pa.binary())
            matching = self._filter.matching(bodies, lambda: [row["key"] for row in puts])
            for row, matches in zip(puts, matching, strict=True):
                if not matches:
                    row |= {"value": None, "removed": STOPPED_MATCHING}
        return rows

    def _link(self, record: str, body: bytes) -> str | None:
        """Return a record's link; a left record without one is alone, a right one is dropped."""
        link = self._link_of(body)
        return ALONE + record if link is None and self._side is Side.LEFT else link

    def _row(self, change: dict[str, Any], link: str, *, moved: bool = False) -> dict[str, Any]:
        home = shard_of(link, self._shards)
        return {**change, "side": int(self._side), "link": link, "moved": int(moved), "home": home}


# --- the joined records of one task: all records of some links, of both sides

JOINED = arrow_schema(
    "side long, link string, key string, file string, block long, position long, value binary"
)
ORDER = [("file", "ascending"), ("block", "ascending"), ("position", "ascending")]
APART = "\n"  # between two keys, which are JSON texts on one line

Row = dict[str, Any]
Rows = dict[str, Row]
"""Records of one side by key, in order of publication."""


@dataclass(slots=True)
class JoinedRecords:
    """The records of both sides that are joined with each other, and which of them changed."""

    before: tuple[Rows, Rows] = field(default_factory=lambda: ({}, {}))
    changes: tuple[Rows, Rows] = field(default_factory=lambda: ({}, {}))

    def now(self, side: Side) -> Rows:
        """Return the records as they are after the changes."""
        changes = self.changes[side]
        kept = {name: row for name, row in self.before[side].items() if name not in changes}
        return kept | {name: row for name, row in changes.items() if row["value"] is not None}


class Pairs:
    """The links of one shard, kept from batch to batch as a table (`JOINED`)."""

    def __init__(self, join: Join, held: pa.Table | None) -> None:
        self._join = join
        self.table = JOINED.empty_table() if held is None else held

    def change(self, routed: pa.Table, *, grouped: bool) -> pa.Table:
        """Take changed records (`ROUTED`); return the joined records that they change (`SENT`).

        By the left record's key, with the newest of the right ones; for `grouped` each pair has
        a row, by both keys. A message counts in one row. Rows are in order of publication.
        """
        links: dict[str, JoinedRecords] = {}
        for row in routed.sort_by(ORDER).to_pylist():
            links.setdefault(row["link"], JoinedRecords()).changes[row["side"]][row["key"]] = row
        is_changed = pc.is_in(self.table.column("link"), pa.array(links, pa.string()))
        for row in self.table.filter(is_changed).to_pylist():
            links[row["link"]].before[row["side"]][row["key"]] = row
        rows_of = self._of_pairs if grouped else self._of_lefts
        rows = [row for link in links.values() for row in rows_of(link)]
        # `Records` takes its changes in order of publication.
        rows.sort(key=lambda row: (row["file"], row["block"], row["position"]))
        held = [
            {name: row[name] for name in JOINED.names}
            for link in links.values()
            for side in Side
            for row in link.now(side).values()
        ]
        others = self.table.filter(pc.invert(is_changed))
        kept = pa.Table.from_pylist(held, schema=JOINED)
        self.table = pa.concat_tables([others, kept]).combine_chunks()
        return pa.Table.from_pylist(rows, schema=ARROW_SENT)

    def _of_lefts(self, link: JoinedRecords) -> Iterator[Row]:
        """Yield a row for each left record that changed, or whose right ones did."""
        changes, others = link.changes
        rights = list(link.now(Side.RIGHT).values())
        right = rights[-1]["value"] if rights else None
        shared = _Count(others.values())
        for record, left in link.now(Side.LEFT).items():
            if record in changes or others:
                own = _Count([changes[record]] if record in changes else [])
                yield _row(record, left, self._join.joined(left["value"], right), own, shared)
        # A moved record has a row at its new link: here it is not removed.
        for record, change in changes.items():
            if change["value"] is None and not change["moved"]:
                yield _row(record, change, None, _Count([change]), shared)

    def _of_pairs(self, link: JoinedRecords) -> Iterator[Row]:
        """Yield a row for each pair that changed, is new or is gone."""
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
    """Messages that count in only one row: the first that takes them."""

    def __init__(self, changes: Iterable[Row]) -> None:
        self._left = list(changes)

    def take(self) -> list[Row]:
        """Return the rows of the messages the first time, then none."""
        left, self._left = self._left, []
        return left


def _paired(lefts: Rows, rights: Rows) -> dict[str, tuple[Row, Row | None]]:
    """Return each left record with each right one, or with None if there is none."""
    # A left record without a right one has a row too.
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
