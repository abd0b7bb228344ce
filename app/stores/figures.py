"""What a store may tell of itself, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """A store's own figures; None stands for what does not apply to it.

    Args:
        commits: steps in which something was written since it was opened.
        queued: writes that wait for their commit.
        size_bytes: what it takes up where it keeps things.
    """

    commits: int
    queued: int = 0
    size_bytes: int | None = None


@runtime_checkable
class MeasuredStore(Protocol):
    """A store that tells its figures. It does so from memory, in no time, from the loop's thread.

    `Store` does not demand it: a store without them has no metrics of its own.
    """

    def figures(self) -> StoreFigures:
        """As they stand now."""
