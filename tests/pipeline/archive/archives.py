"""Small archives to read: rows made up, written as the journal's archiver writes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.pipeline.archive.folder import TopicFolder
from tidegate.pipeline.archive.writing import ROWS, Edge, FinishedFile, edge_of, write_parts

DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2

Row = tuple[int, int, str | None, str | None, str | None]
"""Position, time, key, value (None: a removal), and why a removal was."""


def row(position: int, time_ms: int = NOON_MS, name: str = "a", n: int | None = None) -> Row:
    """A message of key `name`."""
    return position, time_ms, f'["{name}"]', f'{{"k":"{name}","n":{n or position}}}', None


def removal(position: int, time_ms: int = NOON_MS, name: str = "a", reason: str = "deleted") -> Row:
    """The removal of a record."""
    return position, time_ms, f'["{name}"]', None, reason


def batch(rows: Iterable[Row], epoch: str = "e1") -> pa.RecordBatch:
    """Rows as the journal gives them."""
    found = [dict(zip(ROWS.names, (epoch, *each), strict=True)) for each in rows]
    return pa.RecordBatch.from_pylist(found, schema=ROWS)


def archive(folder: TopicFolder, *batches: Iterable[Row], epoch: str = "e1") -> list[Path]:
    """Archive batches one after the other, as the running archiver does; every file there is."""
    for number, rows in enumerate(batches):
        parts = folder.parts()
        last = edge_of(folder.file(parts[-1]), parts[-1]) if parts else Edge(epoch, None, 0)
        edge = last if last.epoch == epoch else Edge(epoch, None, last.clock_ms + 1)
        folder.unfinished.mkdir(parents=True, exist_ok=True)
        for written in list(
            write_parts([batch(rows, epoch)], edge, folder.unfinished, f"{number}")
        ):
            folder.publish(written.name, written.part)
    return files(folder)


def files(folder: TopicFolder) -> list[Path]:
    """Every file that a plain reader sees, in the order of the paths."""
    return sorted(folder.path.glob("date=*/*"))


def positions(folder: TopicFolder) -> list[int]:
    """What a plain reader of Parquet finds, in the order of the paths."""
    return [
        position
        for path in files(folder)
        for position in pq.read_table(path, partitioning=None).column("position").to_pylist()
    ]


def written(folder: TopicFolder, rows: Iterable[Row], edge: Edge) -> list[FinishedFile]:
    """Files that nobody sees yet."""
    folder.unfinished.mkdir(parents=True, exist_ok=True)
    return list(write_parts([batch(rows, edge.epoch)], edge, folder.unfinished, "x"))


def unheard(line: str) -> None:
    """Nobody reads what a command says."""
