"""When the records of a topic expire."""

from __future__ import annotations

from collections import deque

from tidegate.keys.text.duration import Instant


class ExpiryDeadlines:
    """Deadlines of a topic's messages in the order of publication; no record is read.

    A record that was published again has a newer offset, so all records up to an offset are due
    together. `deadline` is the earliest one.
    """

    def __init__(self) -> None:
        self.deadline: Instant | None = None
        self._due: deque[tuple[Instant, int]] = deque()

    def schedule(self, offset: int, due: Instant) -> None:
        """Let messages up to this offset expire at `due`, at the latest."""
        # After a shorter expiration, messages with later deadlines are due with these.
        while self._due and self._due[-1][0] >= due:
            self._due.pop()
        self._due.append((due, offset))
        self.deadline = self._due[0][0]

    def expired(self, now: Instant) -> int:
        """Return the offset up to which records have expired; 0 if none has."""
        through = 0
        while self._due and self._due[0][0] <= now:
            through = self._due.popleft()[1]
        self.deadline = self._due[0][0] if self._due else None
        return through

    def forget(self) -> None:
        """Let nothing expire any more."""
        self._due.clear()
        self.deadline = None
