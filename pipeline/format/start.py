"""Where a stream begins, noted before anything is planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tidegate.pipeline.atomic_files import write
from tidegate.pipeline.errors import CheckpointMismatch

START_FILE = "start_file"
"""The option that names the file; Spark's users have none, and Spark asks a stream of theirs."""

Offset = dict[str, Any]


def noted_start(path: str | None, ask: Callable[[], Offset]) -> Offset:
    """Return the offset before the first message of a stream; ask for it once, if a file is given.

    Spark asks for it again if it was ended before its first batch was done, although the end of
    that batch is planned by then. What left the source meanwhile would be missing without a word.

    Raises:
        CheckpointMismatch: the file cannot be read.
    """
    if path is None:
        return ask()
    file = Path(path)
    if not file.exists():
        offset = ask()
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, msgspec.json.encode(offset))
        return offset
    try:
        return msgspec.json.decode(file.read_bytes(), type=Offset)
    except msgspec.DecodeError:
        raise CheckpointMismatch(
            f"the checkpoint's {file} is not whole: put it back, or remove the checkpoint to begin "
            "again"
        ) from None
