"""Queue watermarks: which queues a publish may have filled to the next relevant level."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

Place = tuple[str, str, str]
"""Session, subscription and topic of a queue."""

_STALE_MAX = 64


@dataclass(slots=True, eq=False)
class Watermark:
    """The watermark of one queue; `is_set` is False once it was reached or replaced."""

    place: Place
    is_set: bool = True


_Entry = tuple[int, int, Watermark]


class Watermarks:
    """Queue watermarks of one feed: a publish checks those that it may have crossed.

    Two heaps over the feed's growth, by messages and by bytes. A watermark that is set again leaves
    stale entries behind, which are dropped when they reach the top or become too many.

    Attributes:
        places: the queues that have a watermark.
    """

    def __init__(self) -> None:
        self.places: dict[Place, Watermark] = {}
        self._by_messages: list[_Entry] = []
        self._by_bytes: list[_Entry] = []
        self._order = count()

    def set(self, place: Place, messages: int, size: int) -> None:
        """Set a queue's watermark: so many messages, or bytes, of the feed's total growth."""
        self.clear(place)
        mark = self.places[place] = Watermark(place)
        self._by_messages = self._with(self._by_messages, (messages, next(self._order), mark))
        self._by_bytes = self._with(self._by_bytes, (size, next(self._order), mark))

    def clear(self, place: Place) -> None:
        """Clear a queue's watermark."""
        mark = self.places.pop(place, None)
        if mark is not None:
            mark.is_set = False

    def due(self, messages: int, size: int) -> list[Place]:
        """Return the queues whose watermark was crossed, and clear these watermarks."""
        crossed = self._crossed(self._by_messages, messages)
        return [*crossed, *self._crossed(self._by_bytes, size)]

    def _crossed(self, heap: list[_Entry], grown: int) -> list[Place]:
        places: list[Place] = []
        while heap and heap[0][0] < grown:
            mark = heappop(heap)[2]
            if mark.is_set:
                places.append(mark.place)
                self.clear(mark.place)
        return places

    def _with(self, heap: list[_Entry], entry: _Entry) -> list[_Entry]:
        heappush(heap, entry)
        # Stale entries may be half of the heap, so cleaning costs a constant for each `set`.
        if len(heap) > 2 * len(self.places) + _STALE_MAX:
            heap = [known for known in heap if known[2].is_set]
            heapify(heap)
        return heap
