"""The schedule: one heap over the deadlines of all lanes."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from conflation.duration import Instant
from conflation.feed import Feed
from conflation.lane import Lane

Entry = tuple[Instant, int, Feed, Lane]


class Schedule:
    """Lanes by deadline, in arming order where equal; stale entries are passed over."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._order = count()

    def arm(self, feed: Feed, lane: Lane) -> None:
        """Note a lane's deadline."""
        if lane.deadline is not None:
            heappush(self._heap, (lane.deadline, next(self._order), feed, lane))

    def next_deadline(self) -> Instant | None:
        """The earliest deadline that still holds."""
        while self._heap and self._heap[0][3].deadline != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: Instant) -> tuple[Feed, Lane] | None:
        """The next lane that is due, taken off the schedule."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        _, _, feed, lane = heappop(self._heap)
        return feed, lane
