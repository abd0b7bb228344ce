"""Messages out of an archive's files, in bounded pieces. Blocks: it is for a thread."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from conflation.definition import Kind
from conflation.frame import Frame, Gone, Tombstone
from keys.archived import COLUMNS, Part, after

ROWS_AT_ONCE = 1_000
PIECE_ROWS_MAX = 5_000
PIECE_BYTES_MAX = 4 * 1024 * 1024

Row = tuple[int, int, str | None, str | None, str | None]
"""Position, time (ms), key, value, and why a removal was."""


class ArchiveDamaged(Exception):
    """A file of an archive is none, or holds something else than its name says."""


def piece(
    parts: Mapping[Part, Path], epoch: str, position: int, through: int, kind: Kind
) -> list[Frame]:
    """Messages that follow a position without a hole, up to `through`, not all of them perhaps.

    Raises:
        FileNotFoundError: a file has become a part of another meanwhile.
        ArchiveDamaged: a file cannot be read.
    """
    frames: list[Frame] = []
    room = PIECE_BYTES_MAX
    try:
        for row in _rows_behind(parts, epoch, position):
            if row[0] != position + 1 or row[0] > through:
                break
            position += 1
            frame = frame_of(row, kind)
            frames.append(frame)
            room -= len(frame.payload)
            if room <= 0 or len(frames) == PIECE_ROWS_MAX:
                break
    except (FileNotFoundError, ArchiveDamaged):
        if not frames:
            raise
    return frames


def rows(path: Path, position: int) -> Iterator[Row]:
    """Rows of a file behind a position; what the footer says to be before it is not read.

    Raises:
        FileNotFoundError, ArchiveDamaged: as `piece`.
    """
    names = list(COLUMNS[1:])
    with opened(path) as file:
        groups = _groups_behind(file.metadata, position)
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=names):
            columns = [batch.column(name).to_pylist() for name in names]
            for row in zip(*columns, strict=True):
                if row[0] > position:
                    yield row


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A file of an archive, while it is read.

    Raises:
        FileNotFoundError, ArchiveDamaged: as `piece`.
    """
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ArchiveDamaged(f"{path.name}: {error}") from None


def frame_of(row: Row, kind: Kind) -> Frame:
    """A message as the engine has it; what a removal took away is not known any more.

    Raises:
        ArchiveDamaged: no message of such a topic, or no reason of a removal.
    """
    position, time_ms, key_text, value, reason = row
    try:
        if value is None:
            gone = Gone(reason or "deleted")
            return Tombstone(position, b"", key_text or "", time_ms, reason=gone)
        return Frame(position, _payload(value.encode(), kind), key_text or "", time_ms)
    except (ValueError, msgspec.MsgspecError) as error:
        raise ArchiveDamaged(f"position {position}: {error}") from None


def _rows_behind(parts: Mapping[Part, Path], epoch: str, position: int) -> Iterator[Row]:
    for part in after(parts, epoch, position):
        yield from rows(parts[part], position)


def _groups_behind(footer: pq.FileMetaData, position: int) -> list[int]:
    column = COLUMNS.index("position")
    groups = range(footer.num_row_groups)
    told = {at: footer.row_group(at).column(column).statistics for at in groups}
    return [at for at, seen in told.items() if seen is None or seen.max > position]


def _payload(value: bytes, kind: Kind) -> bytes:
    """As it was published: the journal tells texts as JSON strings, bytes as their base64."""
    if kind is Kind.TEXT:
        return msgspec.json.decode(value, type=str).encode()
    if kind is Kind.BINARY:
        return base64.b64decode(msgspec.json.decode(value, type=str), validate=True)
    return value
