"""The schedule: one heap over all deadlines."""

from __future__ import annotations

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
