"""A shard: some keys of a stream, and all that is known of them between two pieces or batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.conflation import Conflation
from pipeline.columns.conflator import NEVER_MS, PUT, REASONS, Deliveries, Rows
from pipeline.columns.intervals import Column, Pace
from pipeline.columns.messages import Messages
from pipeline.columns.rows import DELIVERIES, arrow_schema

ROWS_MAX = 10_000
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
        """The next messages, whose codes number `texts`."""
        rows = self._rows(found, texts)
        if self.now_ns is not None:
            rows.times_ns = np.full(len(rows.codes), self.now_ns)
            self.conflator.gather(rows)
            return
        taken = self.timeline.add(rows, found.greatest_ns, found.clock_ns)
        yield from self._told(self.conflator.add(taken, self.timeline.passed_ns))

    def close(self) -> Iterator[pa.RecordBatch]:
        """The end of a batch: what is due in processing time."""
        if self.now_ns is None:
            return
        if self.conflator.interval.pace is Pace.BATCH:
            yield from self.finish()
        else:
            yield from self._told(self.conflator.release(self.now_ns))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All that waits or is held."""
        yield from self._told(self.conflator.add(self.timeline.finish(), self.timeline.passed_ns))
        yield from self._told(self.conflator.finish())

    def combined(self) -> Iterator[pa.RecordBatch]:
        """All that is held, with values as they are saved: for `join` of another shard."""
        yield from self._told(self.conflator.finish(), self.conflator.bodies.saved)

    def join(self, rows: pa.RecordBatch) -> None:
        """What others have combined of later messages, in processing time."""
        count = rows.num_rows
        keys, files, blocks = (rows.column(name).to_pylist() for name in ("key", "file", "block"))
        parts = [f"{file}\0{block:019}" for file, block in zip(files, blocks, strict=True)]
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
            absent=np.zeros(count, np.bool_),
            values=self.conflator.bodies.loaded(rows.column("value")),
        )
        self.conflator.gather(found)

    def _rows(self, found: Messages, texts: list[str]) -> Rows:
        count = len(found.codes)
        put = (found.gone == PUT).astype(np.int64)
        return Rows(
            codes=numbered(self.keys, texts)[found.codes],
            times_ns=found.times_ns,
            messages=put,
            firsts=found.positions,
            first_ms=found.published_ms,
            parts=np.full(count, self.parts.setdefault(found.part, len(self.parts))),
            lasts=found.positions,
            gone=found.gone,
            absent=np.zeros(count, np.bool_),
            values=self.conflator.bodies.begin(found.bodies),
        )

    def _told(
        self, found: Deliveries, shown: Callable[[Any], pa.Array] | None = None
    ) -> Iterator[pa.RecordBatch]:
        rows, due_ns = found.rows, found.due_ns
        if not len(rows.codes):
            return
        is_put = pa.array(rows.gone == PUT)
        values = (shown or self.conflator.bodies.shown)(rows.values)
        at_once = self.now_ns is not None and self.conflator.interval.pace is Pace.BATCH
        told = {
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
        batch = pa.RecordBatch.from_pydict(told, schema=_SCHEMA)
        for start in range(0, len(due_ns), ROWS_MAX):
            yield batch.slice(start, ROWS_MAX)


def refused(found: Messages) -> pa.RecordBatch:
    """Rows as in `DELIVERIES` for lines that were set aside."""
    count = len(found.reasons)
    told = {
        name: pa.nulls(count, kind) for name, kind in zip(_SCHEMA.names, _SCHEMA.types, strict=True)
    }
    told |= {
        **placed({found.part: 0}, np.zeros(count, np.int64)),
        "position": found.positions,
        "value": found.bodies,
        "messages": np.ones(count, np.int64),
        "first_ms": milliseconds(found.published_ms),
        "refused": found.reasons,
        "first": found.positions,
    }
    return pa.RecordBatch.from_pydict(told, schema=_SCHEMA)


def numbered(numbers: dict[str, int], texts: Sequence[str]) -> Column:
    """The numbers of texts, new ones for new texts."""
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def named(texts: dict[str, int], codes: Column) -> pa.Array:
    """The texts that codes number."""
    return pa.array([*texts], pa.string()).take(pa.array(codes))


def placed(parts: dict[str, int], codes: Column) -> dict[str, pa.Array]:
    """Columns `file` and `block` of the parts that codes number."""
    files, blocks = [], []
    for part in parts:
        file, _, block = part.rpartition("\0")
        files.append(file)
        blocks.append(int(block))
    places = pa.array(codes)
    return {
        "file": pa.array(files, pa.string()).take(places),
        "block": pa.array(blocks, pa.int64()).take(places),
    }


def milliseconds(times_ms: Column) -> pa.Array:
    """Times of publication, null where nobody knows."""
    return pa.array(times_ms, pa.int64(), mask=times_ms == NEVER_MS)
