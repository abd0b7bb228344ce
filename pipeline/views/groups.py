"""The groups of a view in one task: partials come in, a row goes out for each touched group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.errors import KeyInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.jsontext import items
from tidegate.keys.projection import Projection
from tidegate.keys.spec import canonical_scalar
from tidegate.pipeline.columns.conflation import NEVER_MS, REASONS, Conflation
from tidegate.pipeline.columns.filtering import BatchFilter
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.rows import SENT, Messages, arrow_schema, shard_of
from tidegate.pipeline.columns.shard import milliseconds, placed, refused
from tidegate.pipeline.views.cells import CellReader, GroupRecords
from tidegate.pipeline.views.partials import (
    NEWEST,
    Partial,
    PartialAggregate,
    partial_aggregate,
)

# --- the records of a view in one task, and the groups that a batch of changes touches
#
# A record is in the group that its newest message names, if that matches the filter. Only its
# cells are kept; a changed group is computed again from the cells of all its records here.

# `part` is the partial of each column of the view (`views/partials.py`), as saved in checkpoints.
PARTIALS = f"{SENT}, home long, shard long, records long, part binary"
ARROW_PARTIALS = arrow_schema(PARTIALS)
PLACE = ("file", "block", "position")
STOPPED_MATCHING = "match"  # the contract's word for a removal because a filter no longer matches


@dataclass(frozen=True, slots=True)
class View:
    """Groups of records that match a filter, and the columns shown of each."""

    projection: Projection
    filter: Filter | None = None
    topic: str = ""


@dataclass(slots=True)
class GroupChange:
    """The effect of a batch on a group: messages, time of the first, place of the last."""

    messages: int = 0
    first_ms: int | None = None
    place: tuple[str, int, int] = ("", 0, 0)
    removed: str | None = None

    def add(self, change: dict[str, Any], *, counts: bool) -> None:
        """Take a change of a record in this group; with `counts` count its messages."""
        file, block, position = (change[name] for name in PLACE)
        self.place, self.removed = (file, block, position), change["removed"]
        if counts:
            self.messages += change["messages"]
            times = [ms for ms in (self.first_ms, change["first_ms"]) if ms is not None]
            self.first_ms = min(times, default=None)


class Records:
    """The records of one shard, kept from batch to batch as a table.

    Columns: `key`, `group`, `batch`, `file`, `block`, `position`, `cell_0` and so on, in order of
    publication.
    """

    def __init__(self, view: View, shard: int, shards: int, held: pa.Table | None) -> None:
        self._view = view
        self._cells = CellReader(view.projection)
        self._shard, self._shards = shard, shards
        self.table = self.schema().empty_table() if held is None else held

    def schema(self) -> pa.Schema:
        """Return the schema of the table."""
        cells = (f", cell_{at} binary" for at in range(self._cells.count))
        return arrow_schema(
            "key string, group string, batch long, file string, block long, position long"
            + "".join(cells)
        )

    def change(self, changes: pa.Table, batch: int) -> pa.RecordBatch:
        """Take the newest of each changed record; return `PARTIALS` of the touched groups.

        `changes` are SENT rows in order of publication; `value` is null for a record that is gone.
        """
        keys = changes.column("key").combine_chunks()
        # Over columns: the table has every record, of which a batch changes few.
        is_changed = pc.is_in(self.table.column("key"), keys)
        fresh = self._fresh(changes, batch)
        groups_before = _groups_by_key(self.table.filter(is_changed), keys)
        groups_now = _groups_by_key(fresh, keys)
        touched: dict[str, GroupChange] = {}
        for change, before, now in zip(changes.to_pylist(), groups_before, groups_now, strict=True):
            # Both the group that a record leaves and the one that it reaches get a new row.
            for group in dict.fromkeys(each for each in (before, now) if each is not None):
                # Messages count once: in its new group, or in its old one if it left all groups.
                counts = group == now or now is None
                touched.setdefault(group, GroupChange()).add(change, counts=counts)
        stays = pc.invert(is_changed)
        self.table = pa.concat_tables([self.table.filter(stays), fresh]).combine_chunks()
        return self._partial_rows(touched)

    def _fresh(self, changes: pa.Table, batch: int) -> pa.Table:
        """Return the changed records that are in a group."""
        puts = changes.filter(changes.column("value").is_valid())
        if self._view.filter is not None and puts.num_rows:
            wanted = BatchFilter(self._view.filter, self._view.topic)
            bodies = puts.column("value").combine_chunks()
            matching = wanted.matching(bodies, puts.column("key").to_pylist)
            puts = puts.filter(pa.array(matching))
        bodies = puts.column("value").to_pylist()
        cells = self._cells.columns(bodies)
        columns = [
            puts.column("key"),
            self._groups_of(bodies, cells),
            pa.array(np.full(len(bodies), batch)),
            *(puts.column(name) for name in ("file", "block", "position")),
            *cells,
        ]
        return pa.table(columns, schema=self.schema())

    def _groups_of(self, bodies: list[bytes], cells: list[pa.Array]) -> pa.Array:
        """Return the group of each record; read each spelling of the grouping fields once."""
        # Groups are few and records many: most spellings come again.
        known: dict[tuple[bytes | None, ...], str] = {}
        fields = len(self._view.projection.grouping.paths)
        spellings = zip(*(cell.to_pylist() for cell in cells[:fields]), strict=True)
        groups: list[str] = []
        for body, spelling in zip(bodies, spellings, strict=True):
            group = known.get(spelling)
            if group is None:
                group = known[spelling] = self._view.projection.group_key(body)
            groups.append(group)
        return pa.array(groups, pa.string())

    def _partial_rows(self, touched: dict[str, GroupChange]) -> pa.RecordBatch:
        """Return a row of `PARTIALS` for each touched group; `part` is null without records."""
        here = pc.is_in(self.table.column("group"), pa.array(touched, pa.string()))
        found = dict(self._partials(GroupRecords.of(self.table.filter(here))))
        rows = [
            {
                "key": group,
                **dict(zip(PLACE, change.place, strict=True)),
                "messages": change.messages,
                "first_ms": change.first_ms,
                "removed": change.removed,
                "home": shard_of(group, self._shards),
                "shard": self._shard,
                "records": found[group][0] if group in found else 0,
                "part": found[group][1] if group in found else None,
            }
            for group, change in touched.items()
        ]
        return pa.RecordBatch.from_pylist(rows, schema=ARROW_PARTIALS)

    def _partials(self, records: GroupRecords) -> Iterator[tuple[str, tuple[int, bytes]]]:
        """Yield for each group the number of its records here, and the partials of their cells."""
        if not records.groups:
            return
        projection = self._view.projection
        columns: list[list[Partial]] = [
            NEWEST.of(records.cells(at), records) for at in range(len(projection.grouping.paths))
        ]
        for column in projection.columns:
            cells = records.cells(self._cells.place(column))
            columns.append(partial_aggregate(column).of(cells, records))
        for group, size, *partials in zip(
            records.groups, records.sizes.tolist(), *columns, strict=True
        ):
            yield group, (size, msgspec.msgpack.encode(partials))


def _groups_by_key(records: pa.Table, keys: pa.Array) -> list[str | None]:
    """Return the group of each key's record, None where there is no record."""
    rows = pc.index_in(keys, records.column("key").combine_chunks())
    groups: list[str | None] = records.column("group").take(rows).to_pylist()
    return groups


# --- the newest of each record: of what one task has seen, and over several tasks


ARROW_SENT = arrow_schema(SENT)
FOREVER = 2**63 - 1
ORDER = [(name, "ascending") for name in PLACE]


def newest_records(
    batches: Iterator[pa.RecordBatch], asked: Conflation
) -> Iterator[pa.RecordBatch]:
    """Yield one task's PUBLISHED rows as SENT rows: the newest of each record, removals too.

    Without fields of a key in `asked` a message comes with its key. A line that is no record is set
    aside.
    """
    intake = Intake(asked)
    for found in intake.messages(batches):
        if found.reasons:
            yield refused(found).select(ARROW_SENT.names)
        else:
            yield from newest(_sent(found, intake.texts)).to_batches()


def newest(rows: pa.Table) -> pa.Table:
    """Return one row for each key (`SENT`), in order of publication.

    Its counts are those of all rows of its key.
    """
    rows = rows.select(ARROW_SENT.names).sort_by(ORDER).combine_chunks()
    encoded = rows.column("key").combine_chunks().dictionary_encode()
    codes = np.asarray(encoded.indices)
    last = np.full(len(encoded.dictionary), -1)
    np.maximum.at(last, codes, np.arange(len(codes)))
    messages, first_ms = np.zeros(len(last), np.int64), np.full(len(last), FOREVER)
    np.add.at(messages, codes, np.asarray(rows.column("messages")))
    np.minimum.at(first_ms, codes, np.asarray(rows.column("first_ms").fill_null(FOREVER)))
    first_ms[first_ms == FOREVER] = NEVER_MS
    in_order = np.argsort(last)
    found = rows.take(pa.array(last[in_order]))
    return _with(
        found, messages=pa.array(messages[in_order]), first_ms=milliseconds(first_ms[in_order])
    )


def _with(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def _sent(found: Messages, texts: list[str]) -> pa.Table:
    """Return a row for each message or removal."""
    count = len(found.codes)
    removed = [REASONS[gone] for gone in found.gone.tolist()]
    columns = {
        "key": pa.array(texts, pa.string()).take(pa.array(found.codes)),
        **placed({found.part: 0}, np.zeros(count, np.int64)),
        "position": found.positions,
        "value": found.bodies,
        "messages": np.ones(count, np.int64),
        "first_ms": milliseconds(found.published_ms),
        "removed": pa.array(removed, pa.string()),
        "refused": pa.nulls(count, pa.string()),
        "due_ns": pa.nulls(count, pa.int64()),
    }
    return pa.Table.from_pydict(columns, schema=ARROW_SENT)


# --- the groups of one task: partials come in, and a row goes out for each touched group

HELD = arrow_schema("key string, shard long, records long, part binary")

Shares = dict[int, dict[str, Any]]
"""The partials of a group, by the shard of its records."""


class Groups:
    """The groups of one shard, kept from batch to batch as a table (`HELD`)."""

    def __init__(self, projection: Projection, held: pa.Table | None) -> None:
        self._projection = projection
        fields: list[PartialAggregate] = [NEWEST] * len(projection.grouping.paths)
        self._aggregates = fields + [partial_aggregate(each) for each in projection.columns]
        self.table = HELD.empty_table() if held is None else held

    def change(self, partials: pa.Table) -> pa.RecordBatch:
        """Take `PARTIALS` of the groups that were touched; return their rows (`SENT`).

        A group without records is gone; one that never had any gets no row. A row
        whose key cannot be a record's is refused.
        """
        touched: dict[str, list[dict[str, Any]]] = {}
        for partial in partials.to_pylist():
            touched.setdefault(partial["key"], []).append(partial)
        # Only touched groups are read into Python; the others stay columns.
        is_touched = pc.is_in(self.table.column("key"), pa.array(touched, pa.string()))
        shares: dict[str, Shares] = {}
        for share in self.table.filter(is_touched).to_pylist():
            shares.setdefault(share["key"], {})[share["shard"]] = share
        rows, kept = [], []
        for group, changes in touched.items():
            before = shares.get(group, {})
            now = {**before, **{partial["shard"]: partial for partial in changes}}
            there = [share for share in now.values() if share["records"]]
            kept += there
            if there or before:
                rows += self._row_or_refusal(self._row(group, changes, there))
        others = self.table.filter(pc.invert(is_touched))
        self.table = pa.concat_tables([others, _table(kept)]).combine_chunks()
        return pa.RecordBatch.from_pylist(rows, schema=ARROW_SENT)

    def _row_or_refusal(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the row; refuse it if its key cannot be a record's, and drop a removal then."""
        paths = self._projection.grouping.paths
        for path, text in zip(paths, items(row["key"].encode()) or (), strict=True):
            try:
                canonical_scalar(bytes(text))
            except KeyInvalid as error:
                reason = f"{error.code}: {path}: {error.detail}"
                return [{**row, "key": None, "refused": reason}] if row["value"] else []
        return [row]

    def _row(
        self, group: str, changes: list[dict[str, Any]], there: list[dict[str, Any]]
    ) -> dict[str, Any]:
        last = max(changes, key=lambda change: tuple(change[name] for name in PLACE))
        times = [ms for change in changes if (ms := change["first_ms"]) is not None]
        return {
            "key": group,
            **{name: last[name] for name in PLACE},
            "value": self._value(there) if there else None,
            "messages": sum(change["messages"] for change in changes),
            "first_ms": min(times, default=None),
            "removed": None if there else last["removed"] or STOPPED_MATCHING,
        }

    def _value(self, shares: list[dict[str, Any]]) -> bytes:
        columns = zip(*(msgspec.msgpack.decode(share["part"]) for share in shares), strict=True)
        texts = [
            aggregate.shown(column)
            for aggregate, column in zip(self._aggregates, columns, strict=True)
        ]
        fields = len(self._projection.grouping.paths)
        return self._projection.assembled(texts[:fields], texts[fields:])


def _table(shares: list[dict[str, Any]]) -> pa.Table:
    rows = [{name: share[name] for name in HELD.names} for share in shares]
    return pa.Table.from_pylist(rows, schema=HELD)
