"""The two kinds of rows of the pipeline: what sources give, and what sinks take.

PUBLISHED, a message or removal each:
    file, block   the piece of the source that has it; these pairs sort in the order of
                  publication. The part after the last NUL of `file` is its name
    position      its place in the piece; null: the rows of a piece are in order, and count from 1
    time_ms       when it was published, or null
    key           the record that it is of; null: its fields say it
    body          JSON text; null for a removal, which has a key
    removed       of a removal why the record is gone, if that is known; null: `deleted`
    refused       null, or why `body` is no message, known already by its source

SENT, what goes out for a key:
    key           of the record; null for a row that was refused
    file, block, position   the place of its last message
    value         the newest text, or what reducers made of it; null for a removal
    messages      how many messages were conflated into it
    first_ms      when the first of them was published, or null
    removed       null, or why the record is gone: `deleted`, `expired`, `match`
    refused       null, or why `value` is no message: a dead letter
    due_ns        when it was due on the stream's own timeline; null where it goes out at once

DELIVERIES are SENT rows that also have
    first         the position of the first message, in its own piece
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidegate.pipeline.intervals import Column, by_code
from tidegate.pipeline.json_fields.field_columns import FieldColumns

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

PUBLISHED = (
    "file string, block long, position long, time_ms long, key string, body binary, "
    "removed string, refused string"
)
SENT = (
    "key string, file string, block long, position long, value binary, messages long, "
    "first_ms long, removed string, refused string, due_ns long"
)
DELIVERIES = SENT + ", first long"
# PySpark's `StructType.fromDDL` asks a running session, and executors have none.
_KINDS = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
}


def arrow_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of columns in Spark's spelling."""
    pairs = (column.split(" ") for column in columns.split(", "))
    return pa.schema([(name, _KINDS[kind]) for name, kind in pairs])


def published(rows: DataFrame, **columns: SparkColumn | str) -> DataFrame:
    """Return PUBLISHED rows with these columns, each a Spark column or SQL; the others are null."""
    # Here, because a replay imports this module, and does without Spark.
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    made = {name: F.expr(it) if isinstance(it, str) else it for name, it in columns.items()}
    spelled = (column.split(" ") for column in PUBLISHED.split(", "))
    return rows.select(
        *(made.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in spelled)
    )


def part_of(file: str, block: int) -> str:
    """Return `file` and `block` as one text, a *part*; parts sort in order of publication."""
    # Nineteen digits, as many as a long has: texts of one length sort as their numbers do.
    return f"{file}\0{block:019}"


def file_and_block(part: str) -> tuple[str, int]:
    """Return the `file` and `block` of a part."""
    # From the right: a `file` may have NULs itself, before its name.
    file, _, block = part.rpartition("\0")
    return file, int(block)


def file_name(file: str) -> str:
    """Return the readable part of a `file`; empty if it has none."""
    return file.rpartition("\0")[2]


# --- blocks: many messages as one row of Spark, their columns packed as Arrow
#
# A shuffle sorts and moves blocks: some hundred of them for millions of messages. A `Block` is cut
# from one part of a source (`part_of`): the `block` of PUBLISHED rows is that part's, no `Block`.
# Rows of a block are in order of publication, and so are blocks by `part` and `row`.

ROWS = "stream int, part string, row long, clock_ns long, messages binary"
ARROW_ROWS = arrow_schema(ROWS)
ORDER = ("stream", "part", "row")
# LZ4 costs little and cuts what a shuffle writes to disk.
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Block:
    """Messages of one stream; `keys` are the texts that `codes` number.

    `clock_ns` is the latest time of the messages that it was cut from, those of other streams too.
    """

    stream: int
    part: str
    row: int
    clock_ns: int
    keys: list[str]
    codes: Column
    times_ns: Column
    values: pa.Array

    def split(self, shards: Sequence[int], count: int) -> Iterator[Block]:
        """Yield a block of the messages of each of some shards, of `count` in all."""
        homes = np.array([shard_of(text, count) for text in self.keys], np.int64)[self.codes]
        for shard in shards:
            chosen = np.flatnonzero(homes == shard)
            used, codes = compact(self.codes[chosen], len(self.keys))
            yield replace(
                self,
                stream=shard,
                keys=[self.keys[code] for code in used.tolist()],
                codes=codes,
                times_ns=self.times_ns[chosen],
                values=self.values.take(pa.array(chosen)),
            )

    def row_of_spark(self) -> tuple[int, str, int, int, bytes]:
        """Return the block as a row of `ROWS`."""
        key = pa.DictionaryArray.from_arrays(
            pa.array(self.codes, pa.int32()), pa.array(self.keys, pa.string())
        )
        columns = [key, pa.array(self.times_ns, pa.int64()), self.values]
        batch = pa.RecordBatch.from_arrays(columns, ["key", "time_ns", "value"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_LZ4) as stream:
            stream.write_batch(batch)
        return self.stream, self.part, self.row, self.clock_ns, sink.getvalue().to_pybytes()


def compact(codes: Column, count: int) -> tuple[Column, Column]:
    """Return which of `count` codes occur, and each message's place among them."""
    present = np.bincount(codes, minlength=count) > 0
    places: Column = np.cumsum(present) - 1
    return np.flatnonzero(present), places[codes]


def shard_of(key_text: str, shards: int) -> int:
    """Return the shard of a key, the same in every process."""
    # Not hash(): its seed differs between processes, and shards are saved between runs.
    return zlib.crc32(key_text.encode()) % shards


class KeyShards:
    """The shards of the keys that one task has seen; `texts` are those of their codes, and grow."""

    def __init__(self, texts: list[str], shards: int) -> None:
        self.texts = texts
        self._shards = shards
        self._shard_ids = np.zeros(0, np.uint16)

    def split(self, codes: Column) -> Iterator[tuple[Column, list[str], Column]]:
        """Yield for each shard: the places of its messages, their keys, and the codes of these."""
        new = [shard_of(text, self._shards) for text in self.texts[len(self._shard_ids) :]]
        self._shard_ids = np.append(self._shard_ids, np.array(new, self._shard_ids.dtype))
        # By sorting once: a pass over all messages for each of many shards would cost more.
        used, numbers = compact(codes, len(self.texts))
        by_shard = np.argsort(self._shard_ids[used], kind="stable")
        used, places = used[by_shard], np.argsort(by_shard)[numbers]
        order = np.argsort(self._shard_ids[codes], kind="stable")
        edges = np.arange(self._shards + 1)
        keys_at = np.searchsorted(self._shard_ids[used], edges)
        messages_at = np.searchsorted(self._shard_ids[codes[order]], edges)
        for shard in range(self._shards):
            mine = used[keys_at[shard] : keys_at[shard + 1]]
            chosen = order[messages_at[shard] : messages_at[shard + 1]]
            texts = [self.texts[code] for code in mine.tolist()]
            yield chosen, texts, places[chosen] - keys_at[shard]


def packed(blocks: Sequence[Block]) -> pa.RecordBatch:
    """Return blocks as a batch of `ROWS`."""
    rows = zip(*(block.row_of_spark() for block in blocks), strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(rows, ARROW_ROWS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_ROWS)


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[Block]:
    """Yield the blocks of batches of `ROWS`."""
    for rows in batches:
        for stream, part, row, clock_ns, messages in zip(
            *(rows.column(name) for name in ARROW_ROWS.names), strict=True
        ):
            batch = pa.ipc.open_stream(messages.as_buffer()).read_next_batch()
            key = batch.column("key")
            yield Block(
                stream.as_py(),
                part.as_py(),
                row.as_py(),
                clock_ns.as_py(),
                key.dictionary.to_pylist(),
                np.asarray(key.indices).astype(np.int64),
                np.asarray(batch.column("time_ns")),
                batch.column("value"),
            )


def to_tasks(blocks: DataFrame, tasks: int) -> DataFrame:
    """Return blocks (`ROWS`) in order, the streams of which go to the tasks in turn."""
    # Not by a hash, which may give one task all that there is. Spark takes the modulus.
    return blocks.repartitionById(tasks, "stream").sortWithinPartitions(*ORDER)


# --- messages as columns, and their way to the shard of their key

_CARRIED = ["greatest_ns", "positions", "firsts", "counts", "published_ms", "gone"]


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in order of publication, each put, removed, or not wanted by the filter.

    EARLIEST_NS, NEVER_MS, PUT and the other reasons are those of `columns/conflation.py`. A row
    of `combined` stands for several.

    Attributes:
        part: their `file` and `block`, as `part_of` writes them.
        row: the place of the first of them in it.
        clock_ns: the greatest time of the piece that they were cut from.
        codes: the number of its key; 0 for messages that were set aside.
        times_ns: its own time; EARLIEST_NS where it has none.
        greatest_ns: the greatest time of the piece up to it.
        positions: its place in the block; of several the last one's.
        firsts: the place of the first of them.
        counts: how many they are.
        published_ms: when the first was published; NEVER_MS where that is unknown.
        gone: PUT, or why it is gone: DELETED, UNMATCHED or EXPIRED.
        bodies: null where it is not put.
        reasons: why each was set aside; empty for messages that can be taken.
        fields: some fields of the bodies, if they were found already.
    """

    part: str
    row: int
    clock_ns: int
    codes: Column
    times_ns: Column
    greatest_ns: Column
    positions: Column
    firsts: Column
    counts: Column
    published_ms: Column
    gone: Column
    bodies: pa.Array
    reasons: tuple[str, ...] = ()
    fields: FieldColumns | None = None

    def combined(self, is_put: Column) -> Messages:
        """Return one row for consecutive messages of a key with equal times, with the newest body.

        They belong to one delivery wherever an interval begins, so nothing is lost if only the
        newest body counts. `is_put` says which messages may be combined.
        """
        order = by_code(self.codes)
        goes_on = np.zeros(len(order), np.bool_)
        goes_on[1:] = is_put[order[1:]] & is_put[order[:-1]]
        for column in (self.codes, self.times_ns, self.greatest_ns):
            by_key = column[order]
            goes_on[1:] &= by_key[1:] == by_key[:-1]
        starts = np.flatnonzero(~goes_on)
        ends = np.append(starts[1:], len(order))
        # The place of the last decides the order: a sort of places, which are few and distinct.
        first, last = order[starts], order[ends - 1]
        again = np.argsort(last)
        first, last, counts = first[again], last[again], (ends - starts)[again]
        return replace(
            self,
            codes=self.codes[last],
            times_ns=self.times_ns[last],
            greatest_ns=self.greatest_ns[last],
            positions=self.positions[last],
            firsts=self.firsts[first],
            counts=counts,
            published_ms=self.published_ms[first],
            gone=self.gone[last],
            bodies=self.bodies.take(pa.array(last)),
            fields=None,
        )

    def block(self, stream: int, chosen: Column, keys: Sequence[str], codes: Column) -> Block:
        """Return the messages at some places as a block for a shard; `codes` number `keys`."""
        columns = [pa.array(getattr(self, name)[chosen], pa.int64()) for name in _CARRIED]
        columns.append(self.bodies.take(pa.array(chosen, pa.int64())))
        carried = pa.StructArray.from_arrays(columns, [*_CARRIED, "bodies"])
        times_ns = self.times_ns[chosen]
        return Block(stream, self.part, self.row, self.clock_ns, [*keys], codes, times_ns, carried)

    def block_of_reasons(self, stream: int) -> Block:
        """Return messages that were set aside as a block whose keys are the reasons."""
        numbers = np.arange(len(self.reasons))
        return self.block(stream, numbers, self.reasons, numbers)

    @classmethod
    def of_block(cls, block: Block) -> Messages:
        """Return the messages of a block that has arrived."""
        *carried, bodies = block.values.flatten()
        greatest_ns, positions, firsts, counts, published_ms, gone = map(np.asarray, carried)
        return cls(
            block.part, block.row, block.clock_ns, block.codes, block.times_ns, greatest_ns,
            positions, firsts, counts, published_ms, gone, bodies,
        )  # fmt: skip

    @classmethod
    def set_aside(cls, block: Block) -> Messages:
        """Return the messages of a block that `block_of_reasons` has made."""
        reasons = tuple(block.keys[code] for code in block.codes.tolist())
        return replace(cls.of_block(block), codes=np.zeros_like(block.codes), reasons=reasons)


BOUNDS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",  # Spark's default is 10,000
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
}


def shuffle_partitions(spark: SparkSession) -> int:
    """Return how many tasks a shuffle makes: as many as there are cores, unless it is set."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def bound_batches(messages: DataFrame) -> None:
    """Make Arrow batches large enough for columns to pay, small enough for a worker's memory."""
    settings = messages.sparkSession.conf
    for name, bound in BOUNDS.items():
        # Spark's other threads read the settings, so they must not change with every batch.
        if settings.get(name) != bound:
            settings.set(name, bound)
