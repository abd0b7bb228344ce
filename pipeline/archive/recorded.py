"""Recorded messages, one by one, in order of publication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.keys.archived import Part
from tidegate.pipeline.archive.folder import TopicFolder, TopicShape
from tidegate.pipeline.errors import ArchiveUnusable


class RecordedPlace(NamedTuple):
    """The place of a message: a position in an epoch, or in other histories a number from 1."""

    epoch: str
    position: int


BEGINNING = RecordedPlace("", 0)
"""Before the first message, whatever its epoch."""


class SourceLocation(NamedTuple):
    """Where a message was found, for people: a file, and which line, row or position of it."""

    file: str
    unit: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A message or removal (then `value` is None, and `reason` says why).

    `clock_ms` is the recorded time, which never runs back; 0 where none is known.
    """

    location: SourceLocation
    place: RecordedPlace
    clock_ms: int
    key_text: str | None
    value: bytes | None
    reason: str | None = None

    @property
    def size(self) -> int:
        """Bytes of its value."""
        return len(self.value or b"")


class Window(NamedTuple):
    """Which messages are asked for: those not before `from_ms`, and before `until_ms`."""

    from_ms: int | None = None
    until_ms: int | None = None

    def has_begun(self, clock_ms: int) -> bool:
        """Return whether a message of this time is not before the window."""
        return self.from_ms is None or clock_ms >= self.from_ms

    def is_over(self, clock_ms: int) -> bool:
        """Return whether a message of this time, and so every later one, is after the window."""
        return self.until_ms is not None and clock_ms >= self.until_ms


class RecordedClock:
    """The time of messages in order: one before the one before it counts as that one."""

    def __init__(self, begins_ms: int = 0) -> None:
        self._now_ms = begins_ms

    def at(self, time_ms: int) -> int:
        """Advance to the time of a message and return it."""
        self._now_ms = max(self._now_ms, time_ms)
        return self._now_ms


class History(NamedTuple):
    """A recorded history.

    `has_times` says whether its times are known; `messages` yields those of a window after a place.
    `shape` is that of the recorded topic, where it is known.
    """

    name: str
    has_times: bool
    messages: Callable[[RecordedPlace, Window], Iterator[Recorded]]
    shape: TopicShape | None = None


# --- an archive's messages in order of publication, also while it is written and compacted

ROWS_AT_ONCE = 5_000  # as Python objects, so not a whole row group
COLUMNS = ["position", "timestamp_ms", "key", "value", "reason"]


def read_archive(folder: TopicFolder, after: RecordedPlace, window: Window) -> Iterator[Recorded]:
    """Yield the messages of a window after a place, one epoch after the other.

    Compaction may merge a file into a larger one while this reads; it continues there.

    Raises:
        ArchiveUnusable: a file is damaged, or positions are missing.
    """
    while True:
        try:
            for message in _read_parts(folder, after, window):
                after = message.place
                yield message
        # Compaction has exchanged the day: list the folder again, continue after the last message.
        except FileNotFoundError:
            continue
        return


def _read_parts(folder: TopicFolder, after: RecordedPlace, window: Window) -> Iterator[Recorded]:
    for part in _parts_of(window, _whole(folder, _parts_after(after, folder.parts()))):
        clock = RecordedClock(part.stamp_ms)
        for position, time_ms, key_text, value, reason in _rows(folder.file(part)):
            clock_ms = clock.at(time_ms)
            if window.is_over(clock_ms):
                return
            # Positions count in their own epoch; a later epoch is after it as a whole.
            is_after = part.epoch != after.epoch or position > after.position
            if is_after and window.has_begun(clock_ms):
                text = None if value is None else value.encode()
                place, location = (
                    RecordedPlace(part.epoch, position),
                    SourceLocation(part.name, "position", position),
                )
                yield Recorded(location, place, clock_ms, key_text, text, reason)


def _parts_after(place: RecordedPlace, parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts that have anything after a place."""
    if place == BEGINNING:
        return parts
    own = [at for at, part in enumerate(parts) if part.epoch == place.epoch]
    if not own:
        raise ArchiveUnusable(f"the archive no longer has epoch {place.epoch}")
    left = parts[own[0] :]
    return [part for part in left if part.epoch != place.epoch or part.last > place.position]


def _whole(folder: TopicFolder, parts: Sequence[Part]) -> Sequence[Part]:
    for part, following in pairwise(parts):
        if part.epoch == following.epoch and part.last + 1 != following.first:
            raise ArchiveUnusable(f"{folder.path}: position {part.last + 1} is missing")
    return parts


def _parts_of(window: Window, parts: Sequence[Part]) -> list[Part]:
    """Return the parts that may have messages of a window, judged by their names."""
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
