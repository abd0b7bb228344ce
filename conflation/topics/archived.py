"""What an archive has of a topic's epoch: told by the shell, which alone can read it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Archived:
    """Positions `first` to `last`, without a hole.

    `stamps`: times (ms) and the positions of the first messages that are no older, both rising.
    """

    first: int
    last: int
    stamps: tuple[tuple[int, int], ...] = ()

    def start_at(self, timestamp_ms: int) -> int:
        """A position behind which every message is that is not older than a time."""
        found = bisect_right(self.stamps, (timestamp_ms, -1)) - 1
        return self.first - 1 if found < 0 else self.stamps[found][1] - 1
