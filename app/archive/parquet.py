"""Messages read from Parquet files, in limited pieces. It blocks: call it in a thread."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.keys.archived import COLUMNS, Part, after

ROWS_AT_ONCE = 1_000
PIECE_ROWS_MAX = 5_000
PIECE_BYTES_MAX = 4 * 1024 * 1024

Row = tuple[int, int, str | None, str | None, str | None]
"""Position, time (ms), key, value, and the reason of a removal."""


class ArchiveDamaged(Exception):
    """A file is not Parquet, or its content does not match its name."""


def piece(
    parts: Mapping[Part, Path], epoch: str, position: int, through: int, kind: Kind
) -> list[Frame]:
    """Read messages that follow a position without a gap, up to `through` or the limit of a piece.

    Raises:
        FileNotFoundError: a file was merged into another.
        ArchiveDamaged: a file cannot be read.
    """
    frames: list[Frame] = []
    bytes_left = PIECE_BYTES_MAX
    try:
        for row in _rows_after(parts, epoch, position):
            # A gap ends the piece: the caller then finds nothing there and says so, rather than
            # skipping it.
            if row[0] != position + 1 or row[0] > through:
                break
            position += 1
            frame = frame_of(row, kind)
            frames.append(frame)
            # Both bounds: a thousand large values would be held in memory at once, many small ones
            # are one step of the loop.
            bytes_left -= len(frame.payload)
            if bytes_left <= 0 or len(frames) == PIECE_ROWS_MAX:
                break
    except (FileNotFoundError, ArchiveDamaged):
        if not frames:  # else what was read is good, and the next piece meets the error again
            raise
    return frames


def rows(path: Path, position: int) -> Iterator[Row]:
    """Yield the rows of a file after a position; skip row groups by their statistics.

    Raises:
        FileNotFoundError, ArchiveDamaged: as `piece`.
    """
    names = list(COLUMNS[1:])
    with opened(path) as file:
        groups = _groups_after(file.metadata, position)
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=names):
            columns = [batch.column(name).to_pylist() for name in names]
            for row in zip(*columns, strict=True):
                if row[0] > position:
                    yield row


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file of an archive.

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
    """Convert a row to a frame; the archive does not keep the value that a removal took away.

    Raises:
        ArchiveDamaged: the row is no message of such a topic, or the reason is unknown.
    """
    position, time_ms, key_text, value, reason = row
    try:
        if value is None:
            gone = RemovalReason(reason or "deleted")
            return Tombstone(position, b"", key_text or "", time_ms, reason=gone)
        return Frame(position, _payload(value.encode(), kind), key_text or "", time_ms)
    except (ValueError, msgspec.MsgspecError) as error:
        raise ArchiveDamaged(f"position {position}: {error}") from None


def _rows_after(parts: Mapping[Part, Path], epoch: str, position: int) -> Iterator[Row]:
    for part in after(parts, epoch, position):
        yield from rows(parts[part], position)


def _groups_after(footer: pq.FileMetaData, position: int) -> list[int]:
    column = COLUMNS.index("position")
    groups = range(footer.num_row_groups)
    statistics = {at: footer.row_group(at).column(column).statistics for at in groups}
    # A group without statistics may hold any position.
    return [at for at, seen in statistics.items() if seen is None or seen.max > position]


def _payload(value: bytes, kind: Kind) -> bytes:
    """Return the published bytes: the journal keeps text as a JSON string, binary as base64."""
    if kind is Kind.TEXT:
        return msgspec.json.decode(value, type=str).encode()
    if kind is Kind.BINARY:
        return base64.b64decode(msgspec.json.decode(value, type=str), validate=True)
    return value
