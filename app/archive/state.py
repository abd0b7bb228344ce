"""Reads the state of the world from an archive, newest messages first. It blocks: use a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from tidegate.app.archive.parquet import frame_of, opened
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame
from tidegate.keys.archived import Part

POSITION_COLUMNS = ["position", "key"]
VALUE_COLUMNS = ["timestamp_ms", "value", "reason"]


class StateReader:
    """Reads the newest message of each key up to a position, one row group at a time.

    Args:
        parts: the files of the archive.
        epoch: only its files are read.
        position: later messages are ignored.
        kind: the topic's type.
        wanted: the keys to find, as frames have them; None for all.

    Attributes:
        found: the newest frame of each key so far; a tombstone for a removed key.
        is_whole: True once older messages cannot change `found`.
    """

    def __init__(
        self,
        parts: Mapping[Part, Path],
        epoch: str,
        position: int,
        kind: Kind,
        wanted: set[str] | None = None,
    ) -> None:
        self.found: dict[str, Frame] = {}
        self.is_whole = position == 0
        self._wanted = wanted
        self._kind = kind
        own = [part for part in parts if part.epoch == epoch and part.first <= position]
        self._steps = self._read(sorted(own, reverse=True), parts, position)

    def step(self) -> bool:
        """Read the next row group; return False at the end.

        Raises:
            FileNotFoundError: a file was merged into another.
            ArchiveDamaged: a file cannot be read.
        """
        return not self.is_whole and next(self._steps, False)

    def _read(self, own: list[Part], parts: Mapping[Part, Path], position: int) -> Iterator[bool]:
        for part in own:
            if part.last < position:
                return  # a gap: the messages in it are unknown
            with opened(parts[part]) as file:
                # From the newest: the first message found of a key is its state, and older values
                # are never read.
                for group in reversed(range(file.num_row_groups)):
                    self._add_group(file, group, position)
                    yield True
            # The next older part has to end here, or messages between them are missing.
            position = part.first - 1
            self._update_whole(position)

    def _add_group(self, file: pq.ParquetFile, group: int, through: int) -> None:
        """Add the newest messages of a row group; read values only for these."""
        group_rows = file.read_row_group(group, columns=POSITION_COLUMNS)
        positions = group_rows.column("position").to_pylist()
        keys = [text or "" for text in group_rows.column("key").to_pylist()]
        newest = {
            text: at
            for at, text in enumerate(keys)
            if positions[at] <= through and text not in self.found and self._wants(text)
        }
        if newest:
            rest = file.read_row_group(group, columns=VALUE_COLUMNS).take(list(newest.values()))
            columns = (rest.column(name).to_pylist() for name in VALUE_COLUMNS)
            for text, time_ms, value, reason in zip(newest, *columns, strict=True):
                row = (positions[newest[text]], time_ms, text, value, reason)
                self.found[text] = frame_of(row, self._kind)
        self._update_whole(None)

    def _wants(self, text: str) -> bool:
        return self._wanted is None or text in self._wanted

    def _update_whole(self, position: int | None) -> None:
        has_all = self._wanted is not None and len(self.found) == len(self._wanted)
        self.is_whole = self.is_whole or has_all or position == 0


def last_position_at(path: Path, part: Part, time_ms: int) -> int:
    """Return the last position of a part that was published at or before a time.

    A message counts as published no earlier than those before it, as clocks may be set back.

    Raises:
        FileNotFoundError, ArchiveDamaged: as `StateReader.step`.
    """
    clock_ms, last = part.stamp_ms, part.first - 1
    names = ["position", "timestamp_ms"]
    with opened(path) as file:
        for batch in file.iter_batches(columns=names):
            columns = (batch.column(name).to_pylist() for name in names)
            for position, published_ms in zip(*columns, strict=True):
                clock_ms = max(clock_ms, published_ms)
                if clock_ms > time_ms:
                    return last
                last = position
    return last
