"""A shard as a table that outlives a batch: what goes on from it is as if it had not ended.

Rows are of a `kind`: `held` and `waiting` in their order, `untold` (came and went, and counts with
the key's next row) and `there` (a key whose record is there). Times stand in the schema's notes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.columns.conflation import Conflation
from pipeline.columns.conflator import FOREVER_NS, Rows
from pipeline.columns.intervals import Column
from pipeline.columns.shard import Shard, named, numbered, placed

GREATEST, PASSED, DUE, KEYS = b"greatest_ns", b"passed_ns", b"due_ns", b"keys"
FAILURES = b"failures"
HELD, WAITING, UNTOLD, THERE = "held", "waiting", "untold", "there"
_NUMBERS = ["times_ns", "messages", "firsts", "first_ms", "lasts", "gone"]


def saved(shard: Shard) -> pa.Table:
    """All that a shard holds, with notes: `GREATEST`, `PASSED`, the earliest `DUE`, and `KEYS`.

    `FAILURES` of the merger are all since the stream began.
    """
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


def restored(table: pa.Table, conflation: Conflation, now_ns: int | None = None) -> Shard:
    """The shard of a table; in processing time its clock does not run back."""
    notes = table.schema.metadata
    passed_ns = int(notes[PASSED])
    shard = Shard(conflation, None if now_ns is None else max(now_ns, passed_ns))
    conflator, timeline = shard.conflator, shard.timeline
    timeline.greatest_ns, timeline.passed_ns = int(notes[GREATEST]), passed_ns
    conflator.bodies.failures = int(notes.get(FAILURES, 0))
    kinds = np.array(table.column("kind").to_pylist(), dtype=object)
    conflator.held = _loaded(shard, table, kinds == HELD)
    timeline.waiting = _loaded(shard, table, kinds == WAITING)
    untold = _loaded(shard, table, kinds == UNTOLD)
    for place, code in enumerate(untold.codes.tolist()):
        conflator.untold[code] = untold.take(np.array([place]), conflator.bodies)
    there = table.filter(pa.array(kinds == THERE)).column("key").to_pylist()
    codes = [shard.keys.setdefault(text, len(shard.keys)) for text in there]
    conflator.there = np.zeros(len(shard.keys), np.bool_)
    conflator.there[codes] = True
    return shard


def _rows(shard: Shard) -> Iterator[tuple[str, Rows]]:
    yield HELD, shard.conflator.held
    yield WAITING, shard.timeline.waiting
    for rows in shard.conflator.untold.values():
        yield UNTOLD, rows


def _table(shard: Shard, kind: str, rows: Rows) -> pa.Table:
    columns = {
        "kind": pa.array([kind] * len(rows.codes), pa.string()),
        "key": named(shard.keys, rows.codes),
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
    columns |= {"kind": pa.array([THERE] * count, pa.string()), "key": named(shard.keys, codes)}
    return pa.table(columns, schema=schema)


def _loaded(shard: Shard, table: pa.Table, chosen: Column) -> Rows:
    found = table.filter(pa.array(chosen, pa.bool_())).combine_chunks()
    keys, files, blocks = (found.column(name).to_pylist() for name in ("key", "file", "block"))
    parts = [f"{file}\0{block:019}" for file, block in zip(files, blocks, strict=True)]
    value = found.column("value")
    return Rows(
        codes=numbered(shard.keys, keys),
        parts=numbered(shard.parts, parts),
        absent=found.column("absent").to_numpy().astype(np.bool_),
        values=shard.conflator.bodies.loaded(
            value.chunk(0) if value.num_chunks else pa.array([], pa.binary())
        ),
        **{name: found.column(name).to_numpy().astype(np.int64) for name in _NUMBERS},
    )
