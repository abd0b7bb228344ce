"""What was kept of a topic: what the engine is to know of it after a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conflation.frame import Frame


@dataclass(frozen=True, slots=True)
class Kept:
    """A topic as it was kept.

    `records` are the newest frames of its keys by rising offset, tombstones of keys that have left
    among them, none older than `horizon`; `journal` what follows `dropped_through`, up to `head`.
    Replaced messages that were not to be conflated may be missing up to `exempt_through`.
    """

    head: int = 0
    records: Sequence[Frame] = ()
    horizon: int = 0
    journal: Sequence[Frame] = ()
    dropped_through: int = 0
    exempt_through: int = 0

    @property
    def through(self) -> int:
        """Records tell of every message up to here; of those behind it the journal does.

        Each message is its key's newest, or there is a newer one: none is newer than all of them.
        """
        return max(self.horizon, self.records[-1].offset if self.records else 0)
