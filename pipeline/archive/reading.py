"""An archive's messages in order of publication, also while it is written and put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from keys.archived import Part
from pipeline.archive.folder import TopicFolder
from pipeline.archive.recorded import BEGINNING, Place, Recorded, RecordedClock, Spot, Window
from pipeline.errors import ArchiveUnusable

ROWS_AT_ONCE = 5_000
COLUMNS = ["position", "timestamp_ms", "key", "value", "reason"]


def archived(folder: TopicFolder, behind: Place, window: Window) -> Iterator[Recorded]:
    """Messages of a window behind a place, epoch after epoch.

    A file that became a part of a larger one meanwhile is found there.

    Raises:
        ArchiveUnusable: a file is damaged, or positions are missing.
    """
    while True:
        try:
            for message in _listed(folder, behind, window):
                behind = message.place
                yield message
        except FileNotFoundError:
            continue
        return


def _listed(folder: TopicFolder, behind: Place, window: Window) -> Iterator[Recorded]:
    for part in _asked(_whole(folder, _behind(folder.parts(), behind)), window):
        clock = RecordedClock(part.stamp_ms)
        for position, time_ms, key_text, value, reason in _rows(folder.file(part)):
            clock_ms = clock.at(time_ms)
            if window.is_over(clock_ms):
                return
            is_behind = part.epoch != behind.epoch or position > behind.position
            if is_behind and window.has_begun(clock_ms):
                text = None if value is None else value.encode()
                place, spot = Place(part.epoch, position), Spot(part.name, "position", position)
                yield Recorded(spot, place, clock_ms, key_text, text, reason)


def _behind(parts: Sequence[Part], place: Place) -> Sequence[Part]:
    """Parts that have anything behind a place."""
    if place == BEGINNING:
        return parts
    own = [at for at, part in enumerate(parts) if part.epoch == place.epoch]
    if not own:
        raise ArchiveUnusable(f"there is nothing of epoch {place.epoch} in the archive any more")
    left = parts[own[0] :]
    return [part for part in left if part.epoch != place.epoch or part.last > place.position]


def _whole(folder: TopicFolder, parts: Sequence[Part]) -> Sequence[Part]:
    for part, following in pairwise(parts):
        if part.epoch == following.epoch and part.last + 1 != following.first:
            raise ArchiveUnusable(f"{folder.path}: position {part.last + 1} is missing")
    return parts


def _asked(parts: Sequence[Part], window: Window) -> list[Part]:
    """Parts that may have messages of a window, by what their names tell."""
    ends = [*(part.stamp_ms for part in parts[1:]), None][: len(parts)]
    return [
        part
        for part, end_ms in zip(parts, ends, strict=True)
        if not window.is_over(part.stamp_ms) and (end_ms is None or window.has_begun(end_ms))
    ]


def _rows(path: Path) -> Iterator[tuple[int, int, str | None, str | None, str | None]]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=COLUMNS):
                columns = (batch.column(name).to_pylist() for name in COLUMNS)
                yield from zip(*columns, strict=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ArchiveUnusable(f"{path}: cannot be read: {error}") from None
