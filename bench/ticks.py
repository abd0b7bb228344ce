"""The recorded day of ticks: where it is, its lines, and the same as files for running streams."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

from dev import ROOT

DAY = "ticks-20131008-day.ndjson.gz"


def recorded_day() -> Path | None:
    """The file (in the folder `TIDEGATE_TICKS`, if that is set); None where there is none."""
    folder = Path(os.environ.get("TIDEGATE_TICKS") or ROOT.parent / "shared" / "data")
    return folder / DAY if (folder / DAY).exists() else None


def lines_of(path: Path) -> Iterator[bytes]:
    """The messages of a gzipped file."""
    with gzip.open(path) as recorded:
        yield from (line.strip() for line in recorded)


def laid_down(folder: Path, lines: list[bytes], size: int) -> None:
    """Files of so many lines, in the order of their times."""
    folder.mkdir()
    for number, low in enumerate(range(0, len(lines), size)):
        path = folder / f"{number:04}.ndjson"
        path.write_bytes(b"\n".join(lines[low : low + size]))
        came_in_order(path, number)


def came_in_order(path: Path, number: int) -> None:
    """Let a file be the one of its number, for streams that take them as they came."""
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
