"""Small files become large ones: neighbours of one day, put together in order."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from keys.archived import Part
from pipeline.archive.folder import TopicFolder, parts_in
from pipeline.archive.writing import ROW_GROUP_ROWS, PartWriter, Written
from pipeline.errors import ArchiveUnusable

TARGET_BYTES = 128 * 1024 * 1024
FILES_MAX = 32
"""So many small files of a day are left alone while a topic is being archived."""

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV})


def compact(folder: TopicFolder, target_bytes: int = TARGET_BYTES) -> int:
    """Put together what is small in every day; returns how many files are fewer.

    The caller holds the folder's lock.

    Raises:
        ArchiveUnusable: the file system cannot do it, or a file is damaged.
    """
    return sum(compact_day(folder, day, target_bytes) for day in folder.days())


def compact_day(folder: TopicFolder, day: Path, target_bytes: int = TARGET_BYTES) -> int:
    """As `compact`, of one day. Where it fails, it leaves nothing behind."""
    parts = parts_in(day)
    groups = [group for group in neighbours(day, parts, target_bytes) if len(group) > 1]
    if not groups:
        return 0
    merged = {part for group in groups for part in group}
    try:
        files = [_merge(folder, day, group, at) for at, group in enumerate(groups)]
        _exchange(folder, day, [part for part in parts if part not in merged], files)
    finally:
        folder.clear()
    return len(merged) - len(files)


def is_crowded(day: Path, target_bytes: int = TARGET_BYTES) -> bool:
    """Whether a day has so many small files that it is worth the while."""
    groups = neighbours(day, parts_in(day), target_bytes)
    return max(map(len, groups), default=0) > FILES_MAX


def neighbours(day: Path, parts: Sequence[Part], target_bytes: int) -> list[list[Part]]:
    """Parts that follow one another and fit into one file; large ones stand alone."""
    groups: list[list[Part]] = []
    room = 0
    for part in parts:
        size = (day / part.name).stat().st_size
        last = groups[-1][-1] if groups else None
        follows = last is not None and (last.epoch, last.last + 1) == (part.epoch, part.first)
        if not follows or size > room:
            groups.append([])
            room = target_bytes
        groups[-1].append(part)
        room -= size
    return groups


def _exchange(
    folder: TopicFolder, day: Path, kept: Sequence[Part], files: Sequence[Written]
) -> None:
    try:
        folder.exchange(day, kept, [(file.name, file.part) for file in files])
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        raise ArchiveUnusable(
            f"{day}: small files stay as they are: this file system has no links"
        ) from None


def _merge(folder: TopicFolder, day: Path, group: Sequence[Part], at: int) -> Written:
    first = group[0]
    path = folder.unfinished / f"{day.name}.{at}.merged"
    writer = PartWriter(path, first.epoch, first.first, first.stamp_ms)
    for rows in _rows(day, group):
        writer.write(rows)
    written = writer.close()
    if written.part.last != group[-1].last:
        raise ArchiveUnusable(f"{day}: {first.name} and its neighbours hold other rows than said")
    return written


def _rows(day: Path, group: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    for part in group:
        try:
            with pq.ParquetFile(day / part.name) as file:
                yield from file.iter_batches(batch_size=ROW_GROUP_ROWS)
        except pa.ArrowException as error:
            raise ArchiveUnusable(f"{day / part.name}: cannot be read: {error}") from None
