"""The deliveries of recorded messages: in one task where they are, or by shards after a shuffle.

Input is a frame of PUBLISHED rows. Rows of one (`file`, `block`) are in order of
publication, and so are those pairs. `position` may be null: then rows count from 1 in their
block. A null `time_ms` or `key` is read from the body; a null body removes the record of `key`.
Output is as in `DELIVERIES`: for each row the key, the positions of the first message and the
last, how many it stands for, the value (null for a removal, with its reason) and when it is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keys.filter import Filter
from keys.reducers import Reduce
from keys.spec import KeySpec
from pipeline.columns.blocks import Block, packed, split, unpacked
from pipeline.columns.conflator import (
    DELETED,
    PUT,
    REASONS,
    UNMATCHED,
    Conflator,
    Deliveries,
    Folded,
    Newest,
    Rows,
)
from pipeline.columns.filtering import BatchFilter
from pipeline.columns.history import lines_by_block, stripped, wrong_line
from pipeline.columns.intervals import MILLISECOND_NS, Column, Interval
from pipeline.columns.reading import LineInvalidError, MessageReader, TimeField

DELIVERIES = (
    "key string, first long, last long, messages long, value binary, removed string, due_ns long"
)
EARLIEST_NS = -(2**63)


@dataclass(frozen=True, slots=True)
class Conflation:
    """What is conflated, and how; `tells_removals` is the option `oof`."""

    key: KeySpec
    interval: Interval
    time: TimeField | None = None
    filter: Filter | None = None
    reduce: Reduce | None = None
    tells_removals: bool = False
    topic: str = ""

    def conflator(self) -> Conflator:
        """The state of a stream, with nothing held."""
        plain = self.reduce is None or self.reduce.is_plain
        bodies = Newest() if plain or self.reduce is None else Folded(self.reduce)
        return Conflator(self.interval, bodies, tells_removals=self.tells_removals)


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one block as columns; `bodies` are null where `gone` says DELETED."""

    part: str
    row: int
    codes: Column
    times_ns: Column
    positions: Column
    gone: Column
    bodies: pa.Array

    def of_shard(self, chosen: Column) -> pa.StructArray:
        """What a block carries of the messages chosen, beside key and time."""
        columns = [
            pa.array(self.positions[chosen]), pa.array(self.gone[chosen]),
            self.bodies.filter(pa.array(chosen)),
        ]  # fmt: skip
        return pa.StructArray.from_arrays(columns, ["position", "gone", "body"])


class Intake:
    """Reads the recorded messages of one task."""

    def __init__(self, conflation: Conflation) -> None:
        self._reader = MessageReader([conflation.key], conflation.time)
        wanted = conflation.filter
        self._filter = None if wanted is None else BatchFilter(wanted, conflation.topic)

    @property
    def texts(self) -> list[str]:
        """The keys that the codes number."""
        return self._reader.codes[0].texts

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Messages]:
        """A task's messages, a piece of a block at a time.

        Raises:
            HistoryInvalid: a line is no message, has no time, or nothing says whose removal it is.
        """
        for part, row, piece in lines_by_block(batches):
            bodies = piece.column("body")
            with suppress(pa.ArrowInvalid):  # the reader says which line is no UTF-8
                bodies = stripped(bodies)
            there = pc.fill_null(pc.not_equal(pc.binary_length(bodies), 0), True)
            if not pc.all(there).as_py():
                piece, bodies = piece.filter(there), bodies.filter(there)
            if not len(bodies):
                continue
            try:
                yield self._read(part, row, piece, bodies)
            except LineInvalidError as error:
                number = row + pc.indices_nonzero(there)[error.index].as_py() + 1
                raise wrong_line(part, number, error.reason) from None

    def _read(self, part: str, row: int, piece: pa.RecordBatch, bodies: pa.Array) -> Messages:
        codes, times_ns = self._keys_and_times(piece, bodies)
        gone = np.where(np.asarray(bodies.is_null()), DELETED, PUT)
        if self._filter is not None:
            there, texts = np.flatnonzero(gone == PUT), self.texts
            keys = [texts[code] for code in codes[there].tolist()]
            matching = self._filter.matching(bodies.drop_null().to_pylist(), keys)
            gone[there[~matching]] = UNMATCHED
            bodies = pc.if_else(pa.array(gone == PUT), bodies, pa.scalar(None, pa.binary()))
        positions = piece.column("position")
        if positions.null_count:
            count = len(bodies)
            positions = pa.array(np.arange(row + 1, row + 1 + count))
        times_ns = np.maximum.accumulate(times_ns)
        return Messages(part, row, codes, times_ns, np.asarray(positions), gone, bodies)

    def _keys_and_times(self, piece: pa.RecordBatch, bodies: pa.Array) -> tuple[Column, Column]:
        """From the columns where they say it of every message, else from the bodies."""
        keys, stored = piece.column("key"), piece.column("time_ms")
        times_ns, codes = None, None
        if keys.null_count or stored.null_count:
            if bodies.null_count:
                nobody = pc.indices_nonzero(bodies.is_null())[0].as_py()
                raise LineInvalidError(nobody, "a removal needs key and time")
            times_ns, [codes] = self._reader.read(bodies.to_pylist())
        if codes is None or not keys.null_count:
            encoded = keys.dictionary_encode()
            code_of = self._reader.codes[0].code
            known = np.array([code_of(text) for text in encoded.dictionary.to_pylist()], np.int64)
            codes = known[np.asarray(encoded.indices)]
        if not stored.null_count:
            times_ns = np.asarray(stored) * MILLISECOND_NS
        if times_ns is None:
            raise LineInvalidError(pc.indices_nonzero(stored.is_null())[0].as_py(), "no time")
        return codes, times_ns


def cut_messages(
    batches: Iterator[pa.RecordBatch], conflation: Conflation, shards: int
) -> Iterator[pa.RecordBatch]:
    """One task's messages as blocks (`blocks.ROWS`), a row for each shard and piece."""
    intake = Intake(conflation)
    for found in intake.messages(batches):
        clock_ns = int(found.times_ns[-1])
        yield packed(
            [
                Block(
                    shard, found.part, found.row, clock_ns, keys, codes, found.times_ns[chosen],
                    found.of_shard(chosen),
                )
                for shard, (chosen, keys, codes) in enumerate(
                    split(found.codes, intake.texts, shards)
                )
            ]
        )  # fmt: skip


def conflate_blocks(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """Deliveries of the shards of one task, whose blocks come in order."""
    for _, blocks in groupby(unpacked(batches), lambda block: block.stream):
        conflator, numbers = conflation.conflator(), dict[str, int]()
        clock_ns = EARLIEST_NS
        for block in blocks:
            known = [numbers.setdefault(text, len(numbers)) for text in block.keys]
            codes = np.array(known, np.int64)[block.codes]
            positions, gone, bodies = block.values.flatten()
            times_ns = np.maximum(block.times_ns, clock_ns)
            clock_ns = max(clock_ns, block.clock_ns)
            kept = conflator.bodies.begin(bodies)
            rows = Rows.of(codes, times_ns, np.asarray(positions), np.asarray(gone), kept)
            yield from _batches(conflator, conflator.add(rows), list(numbers))
        yield from _batches(conflator, conflator.finish(), list(numbers))


def conflate_in_place(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """Deliveries of one task's messages, which are all there are of their keys, in order."""
    intake, conflator = Intake(conflation), conflation.conflator()
    clock_ns = EARLIEST_NS
    for found in intake.messages(batches):
        times_ns = np.maximum(found.times_ns, clock_ns)
        clock_ns = int(times_ns[-1])
        kept = conflator.bodies.begin(found.bodies)
        rows = Rows.of(found.codes, times_ns, found.positions, found.gone, kept)
        yield from _batches(conflator, conflator.add(rows), intake.texts)
    yield from _batches(conflator, conflator.finish(), intake.texts)


def _batches(conflator: Conflator, found: Deliveries, keys: list[str]) -> Iterator[pa.RecordBatch]:
    rows = found.rows
    if not len(rows.codes):
        return
    is_put = pa.array(rows.gone == PUT)
    values = conflator.bodies.shown(rows.values)
    columns = [
        pa.array([keys[code] for code in rows.codes.tolist()], pa.string()),
        pa.array(rows.firsts),
        pa.array(rows.lasts),
        pa.array(rows.messages),
        pc.if_else(is_put, values, pa.scalar(None, pa.binary())),
        pa.array([REASONS[gone] for gone in rows.gone.tolist()], pa.string()),
        pa.array(found.due_ns),
    ]
    names = [field.partition(" ")[0] for field in DELIVERIES.split(", ")]
    yield pa.RecordBatch.from_arrays(columns, names)
