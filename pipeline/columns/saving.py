"""A shard as a table between two batches: restored, it continues as if there was no break.

Rows are of a `kind`: `held` and `waiting` in their order, `untold` (a key that came and went
unsent; its messages count with its next row) and `there` (a key whose record exists). The
schema's metadata has the times.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.conflation import FOREVER_NS, Conflation, Rows
from tidegate.pipeline.columns.rows import shard_of
from tidegate.pipeline.columns.shard import Shard, numbered, placed

GREATEST, PASSED, DUE, KEYS = b"greatest_ns", b"passed_ns", b"due_ns", b"keys"
FAILURES = b"failures"
HELD, WAITING, UNSENT, THERE = "held", "waiting", "untold", "there"  # words in saved tables
_NUMBERS = ["times_ns", "messages", "firsts", "first_ms", "lasts", "gone"]


def saved(shard: Shard) -> pa.Table:
    """Save a shard, with the notes `GREATEST`, `PASSED`, the earliest `DUE`, and `KEYS`.

    `FAILURES` of the merger are all since the stream began. What was added in event time must have
    settled.
    """
    for _ in shard.settle():
        raise AssertionError("due rows have not been sent")
    conflator, timeline = shard.conflator, shard.timeline
    passed_ns = timeline.passed_ns if shard.now_ns is None else shard.now_ns
    times_ns = conflator.held.times_ns
    due_ns = conflator.interval.due_ns(times_ns).min() if len(times_ns) else FOREVER_NS
    notes = {
        GREATEST: timeline.greatest_ns,
        PASSED: passed_ns,
        DUE: due_ns,
        KEYS: len(np.unique(conflator.held.codes)),
        FAILURES: conflator.bodies.failures,
    }
    tables = [_table(shard, kind, rows) for kind, rows in _rows(shard)]
    tables.append(_there(shard, tables[0].schema))
    return pa.concat_tables(tables).replace_schema_metadata(
        {note: str(value) for note, value in notes.items()}
    )


def restored(
    table: pa.Table, conflation: Conflation, now_ns: int | None = None, shards: int | None = None
) -> Shard:
    """Restore a shard from its table; in processing time its clock does not run back."""
    notes = table.schema.metadata
    passed_ns = int(notes[PASSED])
    shard = Shard(conflation, None if now_ns is None else max(now_ns, passed_ns), shards)
    conflator, timeline = shard.conflator, shard.timeline
    timeline.greatest_ns, timeline.passed_ns = int(notes[GREATEST]), passed_ns
    # Tables of streams that began without this note are still read.
    conflator.bodies.failures = int(notes.get(FAILURES, 0))
    conflator.held = _loaded(shard, table, HELD)
    timeline.waiting = _loaded(shard, table, WAITING)
    conflator.unsent = _loaded(shard, table, UNSENT)
    codes = numbered(shard.keys, _of_kind(table, THERE).column("key").to_pylist())
    conflator.there = np.zeros(len(shard.keys), np.bool_)
    conflator.there[codes] = True
    return shard


def part_of_shard(table: pa.Table, before: int, shard: int, shards: int) -> pa.Table:
    """Return the part of a table, of one of `before` shards, that is of one of `shards` shards."""
    keys = table.column("key").to_pylist()
    homes = np.array([shard_of(key, shards) for key in keys], np.int64)
    # Only one of them keeps the failures, or they would be counted several times.
    notes = table.schema.metadata if shard < before else {**table.schema.metadata, FAILURES: b"0"}
    return table.filter(pa.array(homes == shard)).replace_schema_metadata(notes)


def _rows(shard: Shard) -> Iterator[tuple[str, Rows]]:
    yield HELD, shard.conflator.held
    yield WAITING, shard.timeline.waiting
    yield UNSENT, shard.conflator.unsent


def _table(shard: Shard, kind: str, rows: Rows) -> pa.Table:
    columns = {
        "kind": pa.repeat(kind, len(rows.codes)),
        "key": shard.named(rows.codes),
        **placed(shard.parts, rows.parts),
        **{name: pa.array(getattr(rows, name), pa.int64()) for name in _NUMBERS},
        "absent": pa.array(rows.absent, pa.bool_()),
        "value": shard.conflator.bodies.saved(rows.values),
    }
    return pa.table(columns)


def _there(shard: Shard, schema: pa.Schema) -> pa.Table:
    codes = np.flatnonzero(shard.conflator.there)
    count = len(codes)
    columns = {field.name: pa.nulls(count, field.type) for field in schema}
    columns |= {"kind": pa.repeat(THERE, count), "key": shard.named(codes)}
    return pa.table(columns, schema=schema)


def _loaded(shard: Shard, table: pa.Table, kind: str) -> Rows:
    found = _of_kind(table, kind)
    return Rows(
        codes=numbered(shard.keys, found.column("key").to_pylist()),
        parts=shard.parts_of(found.column("file"), found.column("block")),
        absent=np.asarray(found.column("absent")).astype(np.bool_),
        values=shard.conflator.bodies.loaded(found.column("value")),
        **{name: np.asarray(found.column(name)).astype(np.int64) for name in _NUMBERS},
    )


def _of_kind(table: pa.Table, kind: str) -> pa.RecordBatch:
    rows = table.filter(pc.equal(table.column("kind"), kind)).combine_chunks()
    columns = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
