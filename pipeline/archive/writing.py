"""Rows of a topic as Parquet files: on an executor, one task a batch, cut where a day ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.keys.archived import COLUMNS, DAY_MS, Part
from tidegate.pipeline.atomic_files import sync
from tidegate.pipeline.columns.rows import arrow_schema
from tidegate.pipeline.errors import ArchiveUnusable

# --- rows of format "tidegate" as rows of an archive

ROWS = arrow_schema(
    "epoch string, position long, timestamp_ms long, key string, value string, reason string"
)
# The gateway reads archives too, and knows the columns from `keys`, which has no Arrow.
assert tuple(ROWS.names) == COLUMNS
_READ = ("offset", "timestamp_ms", "key", "value", "removed")


def archive_rows(read: pa.RecordBatch, epoch: str) -> pa.RecordBatch:
    """Return the same rows with the columns of an archive; texts stay as published."""
    columns = [pa.repeat(pa.scalar(epoch), read.num_rows), *(read.column(name) for name in _READ)]
    arrays = [column.cast(kind) for column, kind in zip(columns, ROWS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


# A reader that wants some of its rows decodes a row group as a whole.
ROW_GROUP_ROWS = 20_000
ROW_GROUP_BYTES = 16 * 1024 * 1024
REPORT = "name string, stamp_ms long, epoch string, first long, last long"
ARROW_REPORT = arrow_schema(REPORT)


class Edge(NamedTuple):
    """Where an archive ends: after this position, at this time or later.

    None: it has nothing of this epoch, and begins with whatever comes first.
    """

    epoch: str
    position: int | None
    clock_ms: int


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A finished file under a temporary name, which no reader sees yet."""

    name: str
    part: Part


def write_parts(
    batches: Iterable[pa.RecordBatch], edge: Edge, folder: Path, prefix: str
) -> Iterator[FinishedFile]:
    """Write rows that follow an edge to files in `folder`; skip rows before it.

    Rows come in order of position. `prefix` is no other attempt's.

    Raises:
        ArchiveUnusable: a position is missing.
    """
    writer: PartWriter | None = None
    position, clock_ms = edge.position, edge.clock_ms
    count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if position is None:
            position = batch.column("position")[0].as_py() - 1
        rows = _new_rows(batch, edge.epoch, position)
        while rows.num_rows:
            times = rows.column("timestamp_ms").to_pylist()
            stamp_ms = max(clock_ms, times[0])
            day = stamp_ms // DAY_MS
            # A folder holds one day, so a file must not have rows of two.
            if writer is not None and writer.day != day:
                yield writer.close()
                writer = None
            if writer is None:
                first = position + 1
                writer = PartWriter(folder / f"{prefix}.{count}", edge.epoch, first, stamp_ms)
                count += 1
            length = _within(times, (day + 1) * DAY_MS)
            clock_ms = max(clock_ms, *times[:length])
            writer.write(rows.slice(0, length))
            position += length
            rows = rows.slice(length)
    if writer is not None:
        yield writer.close()


class PartWriter:
    """One file on its way: row groups of a bounded size, statistics where readers skip by them."""

    def __init__(self, path: Path, epoch: str, first: int, stamp_ms: int) -> None:
        self.day = stamp_ms // DAY_MS
        self._path = path
        self._part = Part(stamp_ms, epoch, first, first - 1)
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._parquet = pq.ParquetWriter(
            path,
            ROWS,
            compression="zstd",
            # Statistics of texts would repeat whole values in the footer.
            write_statistics=["epoch", "position", "timestamp_ms"],
            sorting_columns=[pq.SortingColumn(ROWS.get_field_index("position"))],
            write_page_index=True,
        )

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows that follow those before."""
        self._held.append(rows)
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> FinishedFile:
        """Have the disk keep it."""
        self._flush()
        self._parquet.close()
        # The driver renames the file next; a name without its bytes would be a damaged archive.
        sync(self._path)
        return FinishedFile(self._path.name, self._part)

    def _flush(self) -> None:
        if not self._held:
            return
        part = self._part
        self._part = Part(part.stamp_ms, part.epoch, part.first, part.last + self._held_rows)
        rows = pa.Table.from_batches(self._held, ROWS).combine_chunks()
        self._parquet.write_table(rows, row_group_size=self._held_rows)
        self._held, self._held_rows, self._held_bytes = [], 0, 0


def _new_rows(batch: pa.RecordBatch, epoch: str, position: int) -> pa.RecordBatch:
    """Return the rows after a position, which must follow it without a gap.

    A journal is read without one: an archive that has lost its end is before its checkpoint.
    """
    positions = batch.column("position").to_pylist()
    known = sum(1 for each in positions if each <= position)
    new = positions[known:]
    if new != list(range(position + 1, position + 1 + len(new))):
        found = next(at for at, place in enumerate(new, position + 1) if at != place)
        raise ArchiveUnusable(
            f"position {found} of epoch {epoch} is missing: the checkpoint is behind it, and the "
            "archive is not: remove the checkpoint, and it is read again"
        )
    return batch.slice(known)


def _within(times: list[int], end_ms: int) -> int:
    """Return how many of the first rows come before the clock reaches a time."""
    return next((at for at, time_ms in enumerate(times) if time_ms >= end_ms), len(times))


def edge_of(path: Path, part: Part) -> Edge:
    """Return where a file ends, by its footer.

    Raises:
        ArchiveUnusable: it is not a complete Parquet file.
    """
    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveUnusable(f"{path}: is not a complete Parquet file: {error}") from None
    column = ROWS.get_field_index("timestamp_ms")
    groups = (footer.row_group(at).column(column) for at in range(footer.num_row_groups))
    latest = (group.statistics.max for group in groups if group.statistics is not None)
    return Edge(part.epoch, part.last, max([part.stamp_ms, *latest]))
