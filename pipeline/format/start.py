"""The offset at which a stream begins, recorded before its first batch is planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tidegate.pipeline.atomic_files import write
from tidegate.pipeline.errors import CheckpointUnusable

START_FILE = "start_file"
"""The option that names the file; only streams of `tidegate pipeline` have it."""

Offset = dict[str, Any]


def recorded_start(path: str | None, ask: Callable[[], Offset]) -> Offset:
    """Return the offset before a stream's first message, which a file keeps if one is given.

    After a restart Spark asks for it again until the first batch is done, although the end of that
    batch is planned already. Messages that left the source meanwhile would be lost silently.

    Raises:
        CheckpointUnusable: the file cannot be read.
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
        raise CheckpointUnusable(
            f"the checkpoint's {file} is not whole: put it back, or remove the checkpoint to begin "
            "again"
        ) from None
