"""A shard: some keys of a stream, and all that is known of them between two pieces or batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.conflation import (
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
BYTES_MAX = 64 * 1024 * 1024
"""What a shard keeps at most before it is split; a task works on several times as much."""
KEY_BYTES, ROW_BYTES = 200, 80  # a text in a dict of Python's, and a row without its value
SPLIT, SHARDS_MAX = 4, 4_096  # how many shards a large one becomes, and most of a stream
SAMPLED = 64  # rows whose values are weighed
FORGOTTEN_KEYS = 10_000  # a shard remembers as many that it does not need, and twice what it does
_SCHEMA = arrow_schema(DELIVERIES)


class Shard:
    """Conflates the messages of its keys; what it gives are rows as in `DELIVERIES`.

    In event time (and of recorded messages) a row goes out when the watermark passes its due time.
    In processing time all messages of a batch come at `now_ns`, and `close` says what is due then:
    what came before a flush belongs to it. With `pace=batch` a batch is an interval.

    `shards` is how many there are, if it may be split.
    """

    def __init__(
        self, conflation: Conflation, now_ns: int | None = None, shards: int | None = None
    ) -> None:
        self.conflation = conflation
        self.conflator = conflation.conflator()
        self.timeline = conflation.timeline()
        self.keys: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        self.now_ns = now_ns
        self.shards = shards
        self._named = pa.array([], pa.string())
        self._texts: list[str] = []
        self._codes = np.zeros(0, np.int64)
        self._added: list[Rows] = []
        self._is_weighed = False

    def add(self, found: Messages, texts: list[str]) -> Iterator[pa.RecordBatch]:
        """Take the next messages, whose codes number `texts`; yield what is due."""
        rows = self._rows(found, texts)
        if self.now_ns is None:
            self.timeline.stamp(rows, found.greatest_ns, found.clock_ns)
        else:
            rows.times_ns = np.full(len(rows.codes), self.now_ns)
        yield from self._add(rows)

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Conflate what was added; yield what is due in event time."""
        rows = self._joined()
        if self.now_ns is None:
            taken = self.timeline.take(rows)
            yield from self._deliveries(self.conflator.add(taken, self.timeline.passed_ns))
        elif len(rows.codes):
            self.conflator.gather(rows)
        if len(self.keys) > FORGOTTEN_KEYS + 2 * (self._kept + int(self.conflator.there.sum())):
            self._forget_keys()
        self._is_weighed = False

    def close(self) -> Iterator[pa.RecordBatch]:
        """End a batch; yield what is due."""
        yield from self.settle()
        if self.now_ns is None:
            return
        if self.conflator.interval.pace is Pace.BATCH:
            yield from self.finish()
        else:
            yield from self._deliveries(self.conflator.release(self.now_ns))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield all that waits or is held."""
        yield from self.settle()
        yield from self._deliveries(
            self.conflator.add(self.timeline.finish(), self.timeline.passed_ns)
        )
        yield from self._deliveries(self.conflator.finish())

    def combined(self) -> Iterator[pa.RecordBatch]:
        """Yield all that is held with saved values, for `join` of another shard."""
        yield from self.settle()
        yield from self._deliveries(self.conflator.finish(), self.conflator.bodies.saved)

    def join(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take what others have combined of later messages, in processing time."""
        count = rows.num_rows
        messages, lasts, firsts = (
            np.asarray(rows.column(name)) for name in ("messages", "position", "first")
        )
        found = Rows(
            codes=numbered(self.keys, rows.column("key").to_pylist()),
            times_ns=np.full(count, self.now_ns or 0),
            messages=messages,
            firsts=firsts,
            first_ms=np.asarray(pc.fill_null(rows.column("first_ms"), NEVER_MS)),
            parts=self.parts_of(rows.column("file"), rows.column("block")),
            lasts=lasts,
            gone=np.full(count, PUT),
            # `combine` runs only without removals, where `absent` has no meaning.
            absent=np.zeros(count, np.bool_),
            values=self.conflator.bodies.loaded(rows.column("value")),
        )
        yield from self._add(found)

    @property
    def is_large(self) -> bool:
        """True if it keeps more than `BYTES_MAX`, and can be split.

        Rows of the largest key do not count: whatever is split, they stay together.
        """
        if self._is_weighed or self.shards is None or self.shards * SPLIT > SHARDS_MAX:
            return False
        self._is_weighed = True  # until it settles again
        kept = (self.conflator.held, self.conflator.unsent, self.timeline.waiting)
        return KEY_BYTES * len(self.keys) + sum(map(self._bytes, kept)) > BYTES_MAX

    def _bytes(self, rows: Rows) -> float:
        count = len(rows.codes)
        if not count:
            return 0
        bodies = self.conflator.bodies
        some = np.linspace(0, count - 1, SAMPLED).astype(np.int64)
        values = int(bodies.saved(bodies.take(rows.values, some)).nbytes) / SAMPLED
        return (count - int(np.bincount(rows.codes).max())) * (ROW_BYTES + values)

    @property
    def _kept(self) -> int:
        held, unsent = self.conflator.held, self.conflator.unsent
        return len(held.codes) + len(unsent.codes) + len(self.timeline.waiting.codes)

    def _add(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Take rows; conflate them once they are as many as those that are kept.

        Conflating costs what is kept, so small pieces would cost its square.
        """
        self._added.append(rows)
        if sum(len(each.codes) for each in self._added) >= self._kept:
            yield from self.settle()

    def _joined(self) -> Rows:
        added, self._added = self._added or [Rows.none(self.conflator.bodies)], []
        while len(added) > 1:  # in pairs, so that none is copied with each of the others
            rest = added[len(added) // 2 * 2 :]
            pairs = zip(added[::2], added[1::2], strict=False)
            added = [one.then(other, self.conflator.bodies) for one, other in pairs] + rest
        return added[0]

    def _forget_keys(self) -> None:
        """Forget keys that are not needed; the others get new numbers."""
        kept = (self.conflator.held, self.conflator.unsent, self.timeline.waiting)
        used = np.zeros(len(self.keys), np.bool_)
        there = used.copy()
        there[: len(self.conflator.there)] = self.conflator.there
        for rows in kept:
            used[rows.codes] = True
        used |= there
        self._named = self.named(np.flatnonzero(used))
        self.keys = {text: code for code, text in enumerate(self._named.to_pylist())}
        self.conflator.there = there[used]
        numbers = np.cumsum(used) - 1
        for rows in kept:
            rows.codes = numbers[rows.codes]
        self._texts, self._codes = [], np.zeros(0, np.int64)

    def named(self, codes: Column) -> pa.Array:
        """Return the keys that codes number."""
        if len(self._named) < len(self.keys):
            new = pa.array([*islice(self.keys, len(self._named), None)], pa.string())
            self._named = pa.concat_arrays([self._named, new])
        return self._named.take(pa.array(codes))

    def _numbers(self, texts: list[str]) -> Column:
        """Return the numbers of texts; those of a list that has grown are looked up once."""
        if texts is not self._texts:
            self._texts, self._codes = texts, np.zeros(0, np.int64)
        new = numbered(self.keys, texts[len(self._codes) :])
        self._codes = np.append(self._codes, new)
        return self._codes

    def parts_of(self, files: pa.Array, blocks: pa.Array) -> Column:
        """Return the numbers of the parts of `file` and `block`, which are few."""
        files = files.dictionary_encode()
        names = files.dictionary.to_pylist()
        blocks, of_blocks = np.unique(np.asarray(blocks), return_inverse=True)
        pairs = np.asarray(files.indices).astype(np.int64) * len(blocks) + of_blocks
        found, places = np.unique(pairs, return_inverse=True)
        pieces = zip(*np.divmod(found, len(blocks)), strict=True) if len(found) else ()
        parts = [part_of(names[file], int(blocks[block])) for file, block in pieces]
        return numbered(self.parts, parts)[places]

    def _rows(self, found: Messages, texts: list[str]) -> Rows:
        count = len(found.codes)
        # A removal is no message: it adds nothing to the count of its row.
        put = np.where(found.gone == PUT, found.counts, 0)
        return Rows(
            codes=self._numbers(texts)[found.codes],
            times_ns=found.times_ns,
            messages=put,
            firsts=found.firsts,
            first_ms=found.published_ms,
            parts=np.full(count, self.parts.setdefault(found.part, len(self.parts))),
            lasts=found.positions,
            gone=found.gone,
            absent=np.zeros(count, np.bool_),
            values=self.conflator.bodies.begin(found.bodies, found.fields),
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
            "key": self.named(rows.codes),
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
