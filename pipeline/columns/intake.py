"""PUBLISHED rows as columns: key, time, and whether the filter wants them, a block at a time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.blocks import on_one_line, pieces, trimmed, wrong_line
from tidegate.pipeline.columns.conflation import (
    DELETED,
    EARLIEST_NS,
    FOREVER_NS,
    NEVER_MS,
    PUT,
    REASONS,
    UNMATCHED,
    Conflation,
)
from tidegate.pipeline.columns.filtering import BatchFilter
from tidegate.pipeline.columns.reading import LineInvalidError, MessageReader
from tidegate.pipeline.columns.rows import ARROW_ROWS, Block, KeyShards, Messages, packed, unpacked
from tidegate.pipeline.columns.saving import part_of_shard, restored, saved
from tidegate.pipeline.columns.shard import SPLIT, Shard, refused
from tidegate.pipeline.intervals import MILLISECOND_NS, Column
from tidegate.pipeline.json_fields.field_columns import FieldColumns, find_fields

OFFSET_BYTES = 4  # of a binary array
KEYS_MAX = 100_000  # of a task that is still reading; then it forgets them
REFUSED = -1
"""The number of the shard whose blocks hold lines that are no messages."""


class Intake:
    """Reads the messages of one task; `names` are fields that are read of them afterwards."""

    def __init__(self, conflation: Conflation, names: Sequence[str] = ()) -> None:
        self._conflation = conflation
        wanted = conflation.filter
        self._filter = None if wanted is None else BatchFilter(wanted, conflation.topic)
        of_filter = [] if self._filter is None else self._filter.names
        self._names = [*dict.fromkeys([*of_filter, *names])]
        self._reader = self._new_reader()

    def _new_reader(self) -> MessageReader:
        asked = self._conflation
        strict = asked.sets_aside
        return MessageReader([asked.key], asked.time, strict=strict)

    @property
    def texts(self) -> list[str]:
        """The keys that the codes number: a list that grows, and is sometimes replaced."""
        return self._reader.codes[0].texts

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Messages]:
        """Yield a task's messages, a piece of a block at a time; refused lines apart.

        `batches` are PUBLISHED rows, or blocks to be read here (`blocks.BLOCKS`).

        Raises:
            HistoryInvalid: a line is no message, has no time, or nothing says whose removal it is,
                unless such are set aside.
        """
        for part, row, piece in pieces(batches):
            if len(self.texts) > KEYS_MAX:
                self._reader = self._new_reader()
            lines = piece.column("body")
            bodies = trimmed(lines)
            # Sources without positions count rows: blank lines count too, as in an editor.
            count = pa.array(np.arange(row + 1, row + 1 + len(bodies)), pa.int64())
            piece = piece.set_column(2, "position", pc.coalesce(piece.column("position"), count))
            # With their breaks, lines of a file are one text, which is decoded where it lies.
            piece = piece.set_column(5, "body", bodies).append_column("line", lines)
            is_blank = pc.equal(pc.binary_length(bodies), 0)
            if pc.any(is_blank).as_py():  # rare, and a filter copies all columns
                piece = piece.filter(pc.fill_null(pc.invert(is_blank), True))
            if self._conflation.sets_aside:
                yield from self._sorted_out(part, piece)
            elif len(piece):
                yield self._taken(part, piece)

    def _sorted_out(self, part: str, piece: pa.RecordBatch) -> Iterator[Messages]:
        bytes_max = self._conflation.line_bytes_max or FOREVER_NS
        try:
            # Try the whole piece first: a refused line is rare, and judging line by line is slow.
            if (pc.max(pc.binary_length(piece.column("body"))).as_py() or 0) <= bytes_max:
                yield from [self._read(part, piece)] if len(piece) else []
                return
        except LineInvalidError:
            pass  # which lines they are is found out below
        given = piece.column("refused").to_pylist()
        judged = self._reader.judged(piece.column("body").to_pylist(), bytes_max)
        reasons = [why or found for why, found in zip(given, judged, strict=True)]
        is_aside = pa.array([reason is not None for reason in reasons])
        if pc.any(is_aside).as_py():
            yield self._set_aside(part, piece.filter(is_aside), [why for why in reasons if why])
        rest = piece.filter(pc.invert(is_aside))
        if len(rest):
            yield self._taken(part, rest)

    def _taken(self, part: str, piece: pa.RecordBatch) -> Messages:
        try:
            return self._read(part, piece)
        except LineInvalidError as error:
            number = piece.column("position")[error.index].as_py()
            raise wrong_line(part, number, error.reason) from None

    def _set_aside(self, part: str, piece: pa.RecordBatch, reasons: list[str]) -> Messages:
        none, no_time = np.zeros(len(piece), np.int64), np.full(len(piece), EARLIEST_NS)
        puts = np.full(len(piece), PUT)
        return _messages(part, piece, none, no_time, puts, piece.column("body"), tuple(reasons))

    def _read(self, part: str, piece: pa.RecordBatch) -> Messages:
        refused = piece.column("refused")
        if refused.null_count < len(refused):
            first = pc.indices_nonzero(refused.is_valid())[0].as_py()
            raise LineInvalidError(first, refused[first].as_py())
        bodies = piece.column("body")
        codes, times_ns = self._keys_and_times(piece)
        gone = np.full(len(bodies), PUT)
        if bodies.null_count:
            gone = np.where(np.asarray(bodies.is_null()), _causes(piece.column("removed")), PUT)
        fields = find_fields(bodies, self._names) if self._names else None
        if self._filter is not None:
            there = np.flatnonzero(gone == PUT)
            texts = self.texts
            has_all = not bodies.null_count
            matching = self._filter.matching(
                bodies if has_all else bodies.drop_null(),
                lambda: [texts[code] for code in codes[there].tolist()],
                fields if has_all else None,
            )
            # Not dropped: a record that stops to match is removed where removals are sent.
            gone[there[~matching]] = UNMATCHED
            bodies = _without(bodies, gone != PUT)
        return _messages(part, piece, codes, times_ns, gone, on_one_line(bodies), fields=fields)

    def _keys_and_times(self, piece: pa.RecordBatch) -> tuple[Column, Column]:
        """Return keys and times: from the columns where they are complete, else from the bodies."""
        keys, stored, bodies = (piece.column(name) for name in ("key", "time_ms", "line"))
        by_field = self._conflation.time is not None
        there = np.flatnonzero(np.asarray(bodies.is_valid()))
        times_ns = np.full(len(bodies), EARLIEST_NS)
        codes = np.zeros(len(bodies), np.int64)
        if keys.null_count or by_field:
            nobodys = np.flatnonzero(np.asarray(pc.and_(keys.is_null(), bodies.is_null())))
            if len(nobodys):
                raise LineInvalidError(int(nobodys[0]), "a removal needs a key")
            try:
                given = bodies.drop_null() if bodies.null_count else bodies
                found_ns, [found] = self._reader.read(given)
            except LineInvalidError as error:
                raise LineInvalidError(int(there[error.index]), error.reason) from None
            codes[there] = found
            if found_ns is not None:
                times_ns[there] = found_ns
        known_rows = np.flatnonzero(np.asarray(keys.is_valid()))
        if len(known_rows):
            # Keys come again and again: only distinct ones are looked up in Python.
            encoded = keys.drop_null().dictionary_encode()
            code_of = self._reader.codes[0].code
            known = np.array([code_of(text) for text in encoded.dictionary.to_pylist()], np.int64)
            codes[known_rows] = known[np.asarray(encoded.indices)]
        if not by_field:
            times_ns = self._stored_ns(stored)
        return codes, times_ns

    def _stored_ns(self, stored: pa.Array) -> Column:
        if stored.null_count and not self._conflation.sets_aside:
            raise LineInvalidError(pc.indices_nonzero(stored.is_null())[0].as_py(), "no time")
        times_ns: Column = np.asarray(pc.fill_null(stored, 0)) * MILLISECOND_NS
        return times_ns


def _without(bodies: pa.Array, is_gone: Column) -> pa.Array:
    """Return bodies with null for some, whose bytes stay where they are."""
    is_valid = pa.array(~is_gone).buffers()[1]
    _, edges, content = bodies.buffers()
    edges = edges.slice(bodies.offset * OFFSET_BYTES)
    return pa.Array.from_buffers(pa.binary(), len(bodies), [is_valid, edges, content])


def _causes(removed: pa.Array) -> Column:
    """Return why each would be gone; DELETED where no known reason is given."""
    found = pc.index_in(removed, pa.array(REASONS, pa.string()), skip_nulls=True)
    causes: Column = np.asarray(pc.fill_null(found, DELETED)).astype(np.int64)
    return causes


def _messages(
    part: str,
    piece: pa.RecordBatch,
    codes: Column,
    times_ns: Column,
    gone: Column,
    bodies: pa.Array,
    reasons: tuple[str, ...] = (),
    fields: FieldColumns | None = None,
) -> Messages:
    positions = np.asarray(piece.column("position"))
    # The clock so far, which shards need: they see a part of the messages only.
    greatest_ns = np.maximum.accumulate(times_ns)
    published_ms = np.asarray(pc.fill_null(piece.column("time_ms"), NEVER_MS))
    return Messages(
        part, int(positions[0]), int(greatest_ns[-1]), codes, times_ns, greatest_ns, positions,
        positions, np.ones(len(codes), np.int64), published_ms, gone, bodies, reasons, fields,
    )  # fmt: skip


# --- the steps of one task


def cut_messages(
    batches: Iterator[pa.RecordBatch], conflation: Conflation, shards: int
) -> Iterator[pa.RecordBatch]:
    """Yield one task's messages as blocks (`rows.ROWS`), a row for each shard and piece.

    Refused lines go to the shard `REFUSED`, with their reasons as keys.
    """
    intake = Intake(conflation)
    key_shards = KeyShards(intake.texts, shards)
    for found in intake.messages(batches):
        if found.reasons:
            yield packed([found.block_of_reasons(REFUSED)])
            continue
        if key_shards.texts is not intake.texts:
            key_shards = KeyShards(intake.texts, shards)
        if conflation.is_newest:
            found = found.combined(found.gone == PUT)
        parts = enumerate(key_shards.split(found.codes))
        yield packed([found.block(shard, *part) for shard, part in parts])


def conflate_blocks(
    batches: Iterator[pa.RecordBatch],
    open_shard: Callable[[int], Shard],
    end_shard: Callable[[int, Shard], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the deliveries of one task's shards, whose blocks (`rows.ROWS`) come in order.

    Args:
        batches: the blocks.
        open_shard: returns the shard of a number, with what it holds.
        end_shard: yields what goes out of a shard after its last block.
    """
    for number, blocks in groupby(unpacked(batches), lambda block: block.stream):
        if number == REFUSED:
            yield from map(refused, map(Messages.set_aside, blocks))
            continue
        yield from _conflate_shard(number, open_shard(number), blocks, end_shard)


def _conflate_shard(
    number: int,
    shard: Shard,
    blocks: Iterator[Block],
    end_shard: Callable[[int, Shard], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the deliveries of a shard; once it is large, of the shards that it is split into.

    What comes after is kept on the disk, so that one of these is in memory at a time.
    """
    for block in blocks:
        yield from shard.add(Messages.of_block(block), block.keys)
        if shard.is_large:
            break
    else:
        yield from end_shard(number, shard)
        return
    assert shard.shards is not None
    yield from shard.settle()
    before, shards = shard.shards, shard.shards * SPLIT
    table, conflation, now_ns = saved(shard), shard.conflation, shard.now_ns
    del shard  # or it would stay in memory with those that it is split into
    numbers = range(number, shards, before)
    # Where Spark has its own files, which go with it if this task is killed.
    spark_folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    with tempfile.TemporaryDirectory(dir=spark_folder or None) as folder:
        paths = [Path(folder, f"{each}.arrow") for each in numbers]
        with ExitStack() as files:
            streams = [
                files.enter_context(pa.ipc.new_stream(str(path), ARROW_ROWS)) for path in paths
            ]
            for block in blocks:
                for stream, part in zip(streams, block.split(numbers, shards), strict=True):
                    stream.write_batch(packed([part]))
        for each, path in zip(numbers, paths, strict=True):
            part = part_of_shard(table, before, each, shards)
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                later = unpacked(iter(stream))
                yield from _conflate_shard(
                    each, restored(part, conflation, now_ns, shards), later, end_shard
                )
            path.unlink()


def combine(batches: Iterator[pa.RecordBatch], conflation: Conflation) -> Iterator[pa.RecordBatch]:
    """Yield one task's PUBLISHED rows as DELIVERIES with saved values, and refused lines."""
    shard, part = Shard(conflation, now_ns=0), ""
    intake = Intake(conflation, shard.conflator.bodies.names)
    for found in intake.messages(batches):
        if found.reasons:
            yield refused(found)
            continue
        # Another task may have a block that lies between two of this task's: one row over both
        # would be merged before or after it as a whole, out of order.
        if found.part != part:
            yield from shard.combined()
            part = found.part
        yield from shard.add(found, intake.texts)
    yield from shard.combined()


def merge(batches: Iterator[pa.RecordBatch], conflation: Conflation) -> Iterator[pa.RecordBatch]:
    """Merge rows of `combine`, in order of publication, into one for each key."""
    shard = Shard(conflation, now_ns=0)
    for rows in batches:
        is_put = pc.is_null(rows.column("refused"))
        yield from shard.join(rows.filter(is_put))
        aside = rows.filter(pc.invert(is_put))
        if len(aside):
            yield aside
    yield from shard.finish()
