"""Expiry: when records that were not published again are due to be removed."""

from __future__ import annotations

from collections import deque

from conflation.duration import Instant


class Expiry:
    """Deadlines of a topic's messages in the order of publication; no look at each record.

    Whoever was published again since has a newer offset, so that what is due is simply every
    record up to an offset. `deadline` is the next one's.
    """

    def __init__(self) -> None:
        self.deadline: Instant | None = None
        self._due: deque[tuple[Instant, int]] = deque()

    def note(self, offset: int, due: Instant) -> None:
        """Messages up to this offset expire then, those that were due later too."""
        while self._due and self._due[-1][0] >= due:
            self._due.pop()
        self._due.append((due, offset))
        self.deadline = self._due[0][0]

    def expired(self, now: Instant) -> int:
        """The offset up to which records have expired; 0 if none has."""
        through = 0
        while self._due and self._due[0][0] <= now:
            through = self._due.popleft()[1]
        self.deadline = self._due[0][0] if self._due else None
        return through

    def forget(self) -> None:
        """Nothing expires any more."""
        self._due.clear()
        self.deadline = None
