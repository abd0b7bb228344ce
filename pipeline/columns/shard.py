"""A shard: some keys of a stream, and all that is known of them between two pieces or batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.conflation import (
    FOREVER_NS,
    NEVER_MS,
    PUT,
    REASONS,
    Conflation,
    Deliveries,
    Rows,
)
from tidegate.pipeline.columns.rows import (
    DELIVERIES,
    Messages,
    arrow_schema,
    file_and_block,
    part_of,
)
from tidegate.pipeline.intervals import Column, Pace

ROWS_MAX = 10_000  # of a batch on its way back to Spark, whose Java holds one at a time
_SCHEMA = arrow_schema(DELIVERIES)


class Shard:
    """Conflates the messages of its keys; what it gives are rows as in `DELIVERIES`.

    In event time (and of recorded messages) a row goes out when the watermark passes its due time.
    In processing time all messages of a batch come at `now_ns`, and `close` says what is due then:
    what came before a flush belongs to it. With `pace=batch` a batch is an interval.
    """

    def __init__(self, conflation: Conflation, now_ns: int | None = None) -> None:
        self.conflator = conflation.conflator()
        self.timeline = conflation.timeline()
        self.keys: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        self.now_ns = now_ns

    def add(self, found: Messages, texts: list[str]) -> Iterator[pa.RecordBatch]:
        """Take the next messages, whose codes number `texts`; yield what is due."""
        rows = self._rows(found, texts)
        if self.now_ns is not None:
            rows.times_ns = np.full(len(rows.codes), self.now_ns)
            self.conflator.gather(rows)
            return
        taken = self.timeline.add(rows, found.greatest_ns, found.clock_ns)
        yield from self._deliveries(self.conflator.add(taken, self.timeline.passed_ns))

    def close(self) -> Iterator[pa.RecordBatch]:
        """End a batch; yield what is due in processing time."""
        if self.now_ns is None:
            return
        if self.conflator.interval.pace is Pace.BATCH:
            yield from self.finish()
        else:
            yield from self._deliveries(self.conflator.release(self.now_ns))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield all that waits or is held."""
        yield from self._deliveries(
            self.conflator.add(self.timeline.finish(), self.timeline.passed_ns)
        )
        yield from self._deliveries(self.conflator.finish())

    def combined(self) -> Iterator[pa.RecordBatch]:
        """Yield all that is held with saved values, for `join` of another shard."""
        yield from self._deliveries(self.conflator.finish(), self.conflator.bodies.saved)

    def join(self, rows: pa.RecordBatch) -> None:
        """Take what others have combined of later messages, in processing time."""
        count = rows.num_rows
        keys, files, blocks = (rows.column(name).to_pylist() for name in ("key", "file", "block"))
        parts = list(map(part_of, files, blocks))
        messages, lasts, firsts = (
            np.asarray(rows.column(name)) for name in ("messages", "position", "first")
        )
        found = Rows(
            codes=numbered(self.keys, keys),
            times_ns=np.full(count, self.now_ns or 0),
            messages=messages,
            firsts=firsts,
            first_ms=np.asarray(pc.fill_null(rows.column("first_ms"), NEVER_MS)),
            parts=numbered(self.parts, parts),
            lasts=lasts,
            gone=np.full(count, PUT),
            # `combine` runs only without removals, where `absent` has no meaning.
            absent=np.zeros(count, np.bool_),
            values=self.conflator.bodies.loaded(rows.column("value")),
        )
        self.conflator.gather(found)

    def _rows(self, found: Messages, texts: list[str]) -> Rows:
        count = len(found.codes)
        # A removal is no message: it adds nothing to the count of its row.
        put = np.where(found.gone == PUT, found.counts, 0)
        return Rows(
            codes=numbered(self.keys, texts)[found.codes],
            times_ns=found.times_ns,
            messages=put,
            firsts=found.firsts,
            first_ms=found.published_ms,
            parts=np.full(count, self.parts.setdefault(found.part, len(self.parts))),
            lasts=found.positions,
            gone=found.gone,
            absent=np.zeros(count, np.bool_),
            values=self.conflator.bodies.begin(found.bodies, found.members),
        )

    def _deliveries(
        self, found: Deliveries, shown: Callable[[Any], pa.Array] | None = None
    ) -> Iterator[pa.RecordBatch]:
        rows, due_ns = found.rows, found.due_ns
        if not len(rows.codes):
            return
        is_put = pa.array(rows.gone == PUT)
        values = (shown or self.conflator.bodies.shown)(rows.values)
        # In processing time with pace=batch the batch is the interval: there is nothing to wait
        # for.
        at_once = self.now_ns is not None and self.conflator.interval.pace is Pace.BATCH
        columns = {
            "key": named(self.keys, rows.codes),
            **placed(self.parts, rows.parts),
            "position": rows.lasts,
            "value": pc.if_else(is_put, values, pa.scalar(None, pa.binary())),
            "messages": rows.messages,
            "first_ms": milliseconds(rows.first_ms),
            "removed": [REASONS[gone] for gone in rows.gone.tolist()],
            "refused": pa.nulls(len(due_ns), pa.string()),
            "due_ns": pa.nulls(len(due_ns), pa.int64()) if at_once else due_ns,
            "first": rows.firsts,
        }
        batch = pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)
        for start in range(0, len(due_ns), ROWS_MAX):
            yield batch.slice(start, ROWS_MAX)


def refused(found: Messages) -> pa.RecordBatch:
    """Return DELIVERIES rows for refused lines."""
    count = len(found.reasons)
    columns = {
        name: pa.nulls(count, kind) for name, kind in zip(_SCHEMA.names, _SCHEMA.types, strict=True)
    }
    columns |= {
        **placed({found.part: 0}, np.zeros(count, np.int64)),
        "position": found.positions,
        "value": found.bodies,
        "messages": np.ones(count, np.int64),
        "first_ms": milliseconds(found.published_ms),
        "refused": found.reasons,
        "first": found.positions,
    }
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)


def numbered(numbers: dict[str, int], texts: Sequence[str]) -> Column:
    """Return the numbers of texts; new texts get new numbers."""
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def named(texts: dict[str, int], codes: Column) -> pa.Array:
    """Return the texts that codes number."""
    return pa.array([*texts], pa.string()).take(pa.array(codes))


def placed(parts: dict[str, int], codes: Column) -> dict[str, pa.Array]:
    """Return the columns `file` and `block` of the parts that codes number."""
    files, blocks = zip(*map(file_and_block, parts), strict=True) if parts else ((), ())
    places = pa.array(codes)
    return {
        "file": pa.array(files, pa.string()).take(places),
        "block": pa.array(blocks, pa.int64()).take(places),
    }


def milliseconds(times_ms: Column) -> pa.Array:
    """Return times of publication, null where they are unknown."""
    return pa.array(times_ms, pa.int64(), mask=times_ms == NEVER_MS)


# --- a shard as a table between two batches: restored, it continues as if there was no break
#
# Rows are of a `kind`: `held` and `waiting` in their order, `untold` (a key that came and went
# unsent; its messages count with its next row) and `there` (a key whose record exists). The
# schema's metadata has the times.

GREATEST, PASSED, DUE, KEYS = b"greatest_ns", b"passed_ns", b"due_ns", b"keys"
FAILURES = b"failures"
HELD, WAITING, UNSENT, THERE = "held", "waiting", "untold", "there"  # words in saved tables
_NUMBERS = ["times_ns", "messages", "firsts", "first_ms", "lasts", "gone"]


def saved(shard: Shard) -> pa.Table:
    """Save a shard, with the notes `GREATEST`, `PASSED`, the earliest `DUE`, and `KEYS`.

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
    """Restore a shard from its table; in processing time its clock does not run back."""
    notes = table.schema.metadata
    passed_ns = int(notes[PASSED])
    shard = Shard(conflation, None if now_ns is None else max(now_ns, passed_ns))
    conflator, timeline = shard.conflator, shard.timeline
    timeline.greatest_ns, timeline.passed_ns = int(notes[GREATEST]), passed_ns
    # Tables of streams that began without this note are still read.
    conflator.bodies.failures = int(notes.get(FAILURES, 0))
    kinds = np.array(table.column("kind").to_pylist(), dtype=object)
    conflator.held = _loaded(shard, table, kinds == HELD)
    timeline.waiting = _loaded(shard, table, kinds == WAITING)
    conflator.unsent = _loaded(shard, table, kinds == UNSENT)
    there = table.filter(pa.array(kinds == THERE)).column("key").to_pylist()
    codes = [shard.keys.setdefault(text, len(shard.keys)) for text in there]
    conflator.there = np.zeros(len(shard.keys), np.bool_)
    conflator.there[codes] = True
    return shard


def _rows(shard: Shard) -> Iterator[tuple[str, Rows]]:
    yield HELD, shard.conflator.held
    yield WAITING, shard.timeline.waiting
    yield UNSENT, shard.conflator.unsent


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
    parts = list(map(part_of, files, blocks))
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
