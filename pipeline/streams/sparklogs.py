"""Spark's own logs in a checkpoint: which batches were planned, and whether what is there is whole.

<folder>/metadata     the query's id: as whom batches are written
<folder>/offsets/N    what batch N reads, written before it begins
<folder>/commits/N    that it is done

Spark reads the newest of each, and makes what is missing anew: a query without its id, or a plan
for a number that was used, would pass messages over in silence.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from pipeline.errors import CheckpointMismatch

_VERSION = re.compile(rb"v\d+")


def planned(folder: Path) -> int:
    """The number of the newest batch that was planned, which may be done already; -1 for none."""
    return max(_numbers(folder / "offsets"), default=-1)


def require_whole(folder: Path) -> None:
    """Check what Spark goes on from.

    Raises:
        CheckpointMismatch: something is missing, or cannot be read; the text says which file.
    """
    newest, done = planned(folder), max(_numbers(folder / "commits"), default=-1)
    if newest < 0 and done < 0:
        return
    if done > newest:
        raise _not_whole(folder / "offsets" / str(done), "is gone")
    _require_texts(folder / "metadata", versioned=False)
    _require_texts(folder / "offsets" / str(newest))
    if done >= 0:
        _require_texts(folder / "commits" / str(done))


def _require_texts(path: Path, *, versioned: bool = True) -> None:
    """JSON texts, a line each, behind a line with a version; a dash stands for none."""
    if not path.exists():
        raise _not_whole(path, "is gone")
    content = path.read_bytes() if versioned else b"v1\n" + path.read_bytes()
    version, _, rest = content.partition(b"\n")
    texts = [line for line in rest.split(b"\n") if line.strip() not in (b"", b"-")]
    if not _VERSION.fullmatch(version) or not texts:
        raise _not_whole(path, "is not whole")
    for text in texts:
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _not_whole(path, "is not whole") from None


def _not_whole(path: Path, what: str) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"the checkpoint's {path} {what}: put all of it back, or remove it to begin again"
    )


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
