"""The log: frames in order, bounded. A topic's journal and the list of a lane are logs."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable
from itertools import accumulate, islice
from weakref import WeakValueDictionary

from tidegate.conflation.definition import History
from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import RowBuild, Steps

_COMPACT_AT = 4_096  # dropped frames after which the lists are copied
_DROPPED = Frame(0, b"")


class Log:
    """Frames by rising offset, with running sums of their payload bytes.

    Frames are dropped only at the old end. So a position is found by bisection, and the messages
    and bytes after it are differences.

    Attributes:
        dropped_through: the offset of the newest frame that has left; 0 for none.
        dropped_ms: its time; None where it is unknown, as after a restart.
    """

    def __init__(self, size_of: Callable[[Frame], int] | None = None) -> None:
        """Begin empty; `size_of` counts a frame's bytes, by default those of its payload."""
        self._size_of = size_of
        self._frames: list[Frame] = []
        # An array takes a fifth of a list's memory, and the garbage collector skips it.
        self._bytes_through = array("q")
        self._start = 0
        self._bytes_total = 0  # of all frames ever
        self._bytes_lost = 0  # of frames that are not in the lists any more
        self.dropped_through = 0
        self.dropped_ms: int | None = None

    def __len__(self) -> int:
        return len(self._frames) - self._start

    def __deepcopy__(self, memo: object) -> Log:
        # Frames are shared; the list is not, as each side drops its own old end.
        twin = Log(self._size_of)
        twin.dropped_through, twin.dropped_ms = self.dropped_through, self.dropped_ms
        twin.extend(self.after(self.dropped_through))
        return twin

    @property
    def payload_bytes(self) -> int:
        """The payload bytes of all frames."""
        return self._bytes_total - self._bytes_before(self._start)

    @property
    def first(self) -> Frame | None:
        """The oldest frame."""
        return self._frames[self._start] if len(self) else None

    @property
    def last(self) -> Frame | None:
        """The newest frame."""
        return self._frames[-1] if len(self) else None

    def extend(self, frames: Iterable[Frame]) -> int:
        """Add frames at the new end; return the bytes added."""
        added = list(frames)
        size_of, before = self._size_of, self._bytes_total
        # Three passes in C are faster than one loop.
        sizes = [len(frame.payload) if size_of is None else size_of(frame) for frame in added]
        self._frames += added
        self._bytes_through.extend(islice(accumulate(sizes, initial=before), 1, None))
        self._bytes_total = before + sum(sizes)
        return self._bytes_total - before

    def after(self, offset: int, until: int | None = None) -> list[Frame]:
        """Return frames after an offset, up to `until` if given, oldest first."""
        start = self._index_after(offset)
        return self._frames[start : None if until is None else self._index_after(until)]

    def backlog(self, offset: int) -> tuple[int, int]:
        """Count the messages and payload bytes after an offset."""
        start = self._index_after(offset)
        return len(self._frames) - start, self._bytes_total - self._bytes_before(start)

    def drop_through(self, offset: int) -> None:
        """Drop everything up to an offset."""
        start = self._index_after(offset)
        if start > self._start:
            newest_gone = self._frames[start - 1]
            self.dropped_through = newest_gone.offset
            self.dropped_ms = newest_gone.timestamp_ms
            # Free them now: `_compact` would free half of the log at once.
            self._frames[self._start : start] = [_DROPPED] * (start - self._start)
            self._start = start
            self._compact()

    def keep(self, history: History) -> None:
        """Drop what a history does not cover; age is relative to the newest frame's time."""
        start = max(self._start, len(self._frames) - history.messages_max)
        if history.bytes_max is not None:
            spare = self._bytes_total - history.bytes_max
            # The sums increase, so the first frame to keep is found by bisection.
            if spare > self._bytes_lost:
                start = max(start, bisect_right(self._bytes_through, spare - 1) + 1)
        if history.age_ms is not None and len(self):
            oldest_ms = self._frames[-1].timestamp_ms - history.age_ms
            while start < len(self._frames) and self._frames[start].timestamp_ms < oldest_ms:
                start += 1
        if start > self._start:
            self.drop_through(self._frames[start - 1].offset)

    def _index_after(self, offset: int) -> int:
        # Dropped frames stay in the list until it is compacted: the search begins after them.
        return bisect_right(self._frames, offset, lo=self._start, key=lambda frame: frame.offset)

    def _bytes_before(self, index: int) -> int:
        return self._bytes_through[index - 1] if index else self._bytes_lost

    def _compact(self) -> None:
        # Deleting each dropped frame at once would move all others each time.
        if self._start == len(self._frames):
            self._frames, self._bytes_through = [], array("q")
            self._bytes_total = self._bytes_lost = self._start = 0
        elif self._start > _COMPACT_AT and self._start * 2 > len(self._frames):
            # Each is one move of memory; the sums need no update.
            self._bytes_lost = self._bytes_through[self._start - 1]
            del self._frames[: self._start], self._bytes_through[: self._start]
            self._start = 0


class SharedReplays:
    """Replays of a topic that subscribers are being sent; equal subscriptions share the rows.

    Readers that reconnect at once, as after a network failure, resume from the same bookmark. Their
    rows are made of all messages of the journal, so they are made once while a subscriber uses
    them.
    """

    def __init__(self) -> None:
        self._builds: WeakValueDictionary[Hashable, RowBuild] = WeakValueDictionary()

    def build(
        self, lane_id: Hashable, after: int, last: int, steps: Callable[[], Steps[list[Frame]]]
    ) -> RowBuild:
        """Return the build of the rows after an offset up to `last`, begun if there is none.

        Messages never change, so the rows depend on nothing else.
        """
        found = self._builds.get((lane_id, after, last))
        if found is None:
            found = self._builds[lane_id, after, last] = RowBuild(steps())
        return found
