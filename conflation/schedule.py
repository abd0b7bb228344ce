"""The schedule: one heap of all deadlines, and due entries that are left for a later call."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

from tidegate.keys.text.duration import Instant


class Timed(Protocol):
    """Has a deadline; None if it is idle."""

    deadline: Instant | None


Owner = TypeVar("Owner")


Entry = tuple[Instant, int, Timed, Owner, str]


class Schedule(Generic[Owner]):
    """A heap of deadlines; equal ones are due in the order of arming.

    A deadline that moves is armed again, and its old entry becomes stale, because removing it would
    need a search of the heap. Entries that were due and left over alternate with newly due ones,
    and are taken topic by topic: a topic with a thousand lanes does not delay the others.
    """

    def __init__(self) -> None:
        self._heap: list[Entry[Owner]] = []
        self._order = count()
        self._left: dict[str, deque[Entry[Owner]]] = {}  # left over by earlier calls, by topic
        self._left_next = False

    def arm(self, timed: Timed, owner: Owner, topic: str = "") -> None:
        """Add a deadline with its owner."""
        if timed.deadline is not None:
            # The count breaks ties, so that `timed` is never compared.
            heappush(self._heap, (timed.deadline, next(self._order), timed, owner, topic))

    def next_deadline(self) -> Instant | None:
        """Return a deadline that was left over, else the earliest new one."""
        due = self.left_since()
        return self.next_new() if due is None else due

    def left_since(self) -> Instant | None:
        """Return the deadline of an entry that was left over; None if there is none."""
        left = self._first_left()
        return None if left is None else left[0]

    def next_new(self) -> Instant | None:
        """Return the earliest deadline that was not left over."""
        while self._heap and _is_stale(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def begin(self, *, left_first: bool) -> None:
        """Begin a call of `advance`: whether its first entry is a left-over or a newly due one."""
        self._left_next = not left_first

    def pop_due(self, now: Instant) -> Owner | None:
        """Remove and return the owner of an entry that is due; None if there is none.

        Newly due entries come in order of their deadlines, left-over ones topic by topic.
        """
        self._left_next = not self._left_next and bool(self._left)
        takes = [self._pop_new, self._pop_left]
        first = takes[self._left_next](now)
        return takes[not self._left_next](now) if first is None else first

    def leave(self, now: Instant) -> None:
        """Move entries that are due to those that are left over for the next call."""
        for _ in range(LEFT_AT_ONCE):
            if not self._heap or self._heap[0][0] > now:
                return
            entry = heappop(self._heap)
            self._left.setdefault(entry[4], deque()).append(entry)

    def _pop_new(self, now: Instant) -> Owner | None:
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            if _is_stale(entry):
                continue
            if entry[4] not in self._left:
                return entry[3]
            self._left[entry[4]].append(entry)
        return None

    def _pop_left(self, _now: Instant) -> Owner | None:
        if (entry := self._first_left()) is None:
            return None
        queue = self._left.pop(entry[4])
        queue.popleft()
        if queue:
            self._left[entry[4]] = queue  # behind the other topics
        return entry[3]

    def _first_left(self) -> Entry[Owner] | None:
        while self._left:
            topic, queue = next(iter(self._left.items()))
            while queue and _is_stale(queue[0]):
                queue.popleft()
            if queue:
                return queue[0]
            del self._left[topic]
        return None


LEFT_AT_ONCE = 500
"""Entries that one call moves; each takes about 1 us."""


def _is_stale(entry: Entry[Owner]) -> bool:
    return entry[2].deadline != entry[0]
