"""The recorded day of ticks: its file, its lines, and files cut from it for running streams."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

from dev import ROOT

DAY = "ticks-20131008-day.ndjson.gz"


def recorded_day() -> Path | None:
    """Return the file, in the folder `TIDEGATE_TICKS` if set, or None if it does not exist."""
    folder = Path(os.environ.get("TIDEGATE_TICKS") or ROOT.parent / "shared" / "data")
    return folder / DAY if (folder / DAY).exists() else None


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the messages of a gzipped file."""
    with gzip.open(path) as recorded:
        yield from (line.strip() for line in recorded)


def write_files(folder: Path, lines: list[bytes], size: int) -> None:
    """Write files of `size` lines each, their times in the order of the lines."""
    folder.mkdir()
    for number, low in enumerate(range(0, len(lines), size)):
        path = folder / f"{number:04}.ndjson"
        path.write_bytes(b"\n".join(lines[low : low + size]))
        set_file_time(path, number)


def set_file_time(path: Path, number: int) -> None:
    """Set a file's time by its number: streams read files in the order of their times."""
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
