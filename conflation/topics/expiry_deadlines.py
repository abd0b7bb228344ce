"""When the records of a topic expire."""

from __future__ import annotations

from collections import deque

from tidegate.keys.text.duration import Instant


class ExpiryDeadlines:
    """Deadlines of a topic's messages in the order of publication; records are not looked at.

    A record that was published again since has a newer offset, so that all records up to an
    offset are due together. `deadline` is that of the next ones.
    """

    def __init__(self) -> None:
        self.deadline: Instant | None = None
        self._due: deque[tuple[Instant, int]] = deque()

    def note(self, offset: int, due: Instant) -> None:
        """Note that messages up to this offset expire then, at the latest."""
        # A shorter expiration overtakes: what was due later is due with it.
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
