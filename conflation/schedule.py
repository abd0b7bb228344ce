"""The schedule: one heap over all deadlines; and when the records of a topic expire."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

from tidegate.keys.text.duration import Instant


class Timed(Protocol):
    """Has a deadline, or None if it waits for nothing."""

    deadline: Instant | None


Owner = TypeVar("Owner")


class Schedule(Generic[Owner]):
    """A heap of deadlines; equal ones are due in the order of arming.

    A deadline that moves is armed again, and its old entry is stale: removing it would cost a
    search of the heap.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Timed, Owner]] = []
        self._order = count()

    def arm(self, timed: Timed, owner: Owner) -> None:
        """Note a deadline and its owner."""
        if timed.deadline is not None:
            # The count breaks ties, so that what is timed is never compared.
            heappush(self._heap, (timed.deadline, next(self._order), timed, owner))

    def next_deadline(self) -> Instant | None:
        """Return the earliest deadline that still holds."""
        while self._heap and self._heap[0][2].deadline != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: Instant) -> Owner | None:
        """Take off one owner whose deadline has come, the earliest first; None if none has."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        return heappop(self._heap)[3]


class Expiry:
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
