"""The state of the world as an archive tells it, newest message first. Blocks: for a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from app.archive.parquet import frame_of, opened
from conflation.definition import Kind
from conflation.frame import Frame
from keys.archived import Part

PLACE = ["position", "key"]
REST = ["timestamp_ms", "value", "reason"]


class StateReader:
    """The newest message of each key at a position of an epoch, a row group at a time.

    `wanted`: the keys that are asked for, by the text that frames have; None: all. `found` has a
    tombstone for a key that was gone. `is_whole`: nothing older can change that.
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
        """Read the next row group; False: there is nothing more to read.

        Raises:
            FileNotFoundError: a file has become a part of another meanwhile.
            ArchiveDamaged: a file cannot be read.
        """
        return not self.is_whole and next(self._steps, False)

    def _read(self, own: list[Part], parts: Mapping[Part, Path], position: int) -> Iterator[bool]:
        for part in own:
            if part.last < position:
                return  # a hole: nobody knows what stood there
            with opened(parts[part]) as file:
                for group in reversed(range(file.num_row_groups)):
                    self._take(file, group, position)
                    yield True
            position = part.first - 1
            self._look(position)

    def _take(self, file: pq.ParquetFile, group: int, through: int) -> None:
        """The rows of a group that are the newest of their keys; only their values are read."""
        places = file.read_row_group(group, columns=PLACE)
        positions = places.column("position").to_pylist()
        keys = [text or "" for text in places.column("key").to_pylist()]
        newest = {
            text: at
            for at, text in enumerate(keys)
            if positions[at] <= through and text not in self.found and self._asks_for(text)
        }
        if newest:
            rest = file.read_row_group(group, columns=REST).take(list(newest.values()))
            columns = (rest.column(name).to_pylist() for name in REST)
            for text, time_ms, value, reason in zip(newest, *columns, strict=True):
                row = (positions[newest[text]], time_ms, text, value, reason)
                self.found[text] = frame_of(row, self._kind)
        self._look(None)

    def _asks_for(self, text: str) -> bool:
        return self._wanted is None or text in self._wanted

    def _look(self, position: int | None) -> None:
        has_all = self._wanted is not None and len(self.found) == len(self._wanted)
        self.is_whole = self.is_whole or has_all or position == 0


def place_at(path: Path, part: Part, time_ms: int) -> int:
    """The last position of a part at a time, by the clock that never runs back.

    Raises:
        FileNotFoundError, ArchiveDamaged: as `StateReader.step`.
    """
    clock_ms, place = part.stamp_ms, part.first - 1
    names = ["position", "timestamp_ms"]
    with opened(path) as file:
        for batch in file.iter_batches(columns=names):
            columns = (batch.column(name).to_pylist() for name in names)
            for position, published_ms in zip(*columns, strict=True):
                clock_ms = max(clock_ms, published_ms)
                if clock_ms > time_ms:
                    return place
                place = position
    return place
