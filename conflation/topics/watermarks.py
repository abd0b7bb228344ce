"""Alarms: whose queue is to be looked at once so much more has come onto a feed."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

Place = tuple[str, str, str]
"""Session, subscription, topic: whose queue it is."""

_STALE_MAX = 64


@dataclass(slots=True, eq=False)
class Alarm:
    """One queue's; not set any more once it has rung, or was set anew."""

    place: Place
    is_set: bool = True


_Entry = tuple[int, int, Alarm]


class Watermarks:
    """For the queues of one feed: a publish looks at those that are due, and at no other."""

    def __init__(self) -> None:
        self._set: dict[Place, Alarm] = {}
        self._by_messages: list[_Entry] = []
        self._by_bytes: list[_Entry] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._set)

    def set(self, place: Place, messages: int, size: int) -> None:
        """Ring once the feed has grown beyond so many messages, or bytes, in all."""
        self.clear(place)
        alarm = self._set[place] = Alarm(place)
        self._by_messages = self._with(self._by_messages, (messages, next(self._order), alarm))
        self._by_bytes = self._with(self._by_bytes, (size, next(self._order), alarm))

    def clear(self, place: Place) -> None:
        """A queue that nobody need look at."""
        alarm = self._set.pop(place, None)
        if alarm is not None:
            alarm.is_set = False

    def due(self, messages: int, size: int) -> list[Place]:
        """Whose alarm rings now that the feed has grown so far."""
        return [*self._rung(self._by_messages, messages), *self._rung(self._by_bytes, size)]

    def _rung(self, heap: list[_Entry], grown: int) -> list[Place]:
        places: list[Place] = []
        while heap and heap[0][0] < grown:
            alarm = heappop(heap)[2]
            if alarm.is_set:
                places.append(alarm.place)
                self.clear(alarm.place)
        return places

    def _with(self, heap: list[_Entry], entry: _Entry) -> list[_Entry]:
        heappush(heap, entry)
        if len(heap) > 2 * len(self._set) + _STALE_MAX:
            heap = [known for known in heap if known[2].is_set]
            heapify(heap)
        return heap
