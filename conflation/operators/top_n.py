"""Top n: the first records by an order, as a live window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappushpop
from operator import attrgetter
from typing import Any

import msgspec
from sortedcontainers import SortedList

from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame
from tidegate.conflation.operators.filter import (
    FilterOperator,
    Move,
    Operator,
    no_longer_matching,
)
from tidegate.conflation.subscription import Window


# Neither can be part of a cycle. As tuples they would be visited by several collections of garbage,
# which hold everybody up, before the collector knows that.
class Place(msgspec.Struct, frozen=True, order=True, gc=False):
    """An order's sort value and the record key, which breaks ties."""

    value: Any
    key: str


class _Record(msgspec.Struct, frozen=True, gc=False):
    """A record with its place in the order."""

    place: Place
    frame: Frame


class TopNOperator(Operator):
    """Keeps all records that match in order, shows those inside the window.

    A record that comes in is put, one that is pushed out leaves for the reason `match`, as in
    AMPS's paginated subscriptions. A record that comes in because another one left has the offset
    of the message that moved it, so that positions on the board keep rising.

    With n records a message costs log n: whatever the window's size, it takes one record out of
    the order, puts one in, and moves at most two over each of the window's ends.
    """

    message_cost = 15

    def __init__(self, rows: FilterOperator, window: Window) -> None:
        self._rows = rows
        self._window = window
        self._start, self._end = window.skip_n, window.skip_n + window.top_n
        # A plain list would shift half of its places with each message: 1 MiB of 250,000 records.
        self._order: Any = SortedList()
        self._records: dict[str, _Record] = {}

    def copy_for(self, board: Board) -> TopNOperator:
        """Return the same window, with its order, for another board."""
        other = TopNOperator(self._rows.copy_for(board), self._window)
        other._order, other._records = self._order.copy(), dict(self._records)
        return other

    def seed(self, frames: Iterable[Frame]) -> Iterable[Move]:
        """Take in records; the window shows none of them before `seeded`.

        Record by record, each would be put on the board and most be pushed out again.
        """
        places: list[Place] = []
        for frame in frames:
            if self._matching(frame):
                place = Place(self._sort_value(frame), frame.key)
                self._records[frame.key] = _Record(place, frame)
                places.append(place)
        self._order.update(places)
        return ()

    def seeded(self) -> Sequence[Move]:
        """Return the rows of the window, as `moves` would have left them there, oldest first."""
        frames = [self._records[place.key].frame for place in self._order.islice(0, self._end)]
        skipped, shown = frames[: self._start], frames[self._start :]
        if not self._start:
            shown.sort(key=attrgetter("offset"))
            return [(frame.key, frame) for frame in shown]
        # Where rows are skipped, a record enters once it exists and as many are before it:
        # the last of these lets it in. They are the first so many that arrived, so a heap of them
        # suffices; offsets are negated, as a heap has the least at its top.
        before = [-frame.offset for frame in skipped]
        heapify(before)
        causes: list[tuple[int, str]] = []
        for frame in shown:
            causes.append((max(frame.offset, -before[0]), frame.key))
            heappushpop(before, -frame.offset)
        causes.sort()
        wanted = {offset for offset, _ in causes}
        by_offset = {frame.offset: frame for frame in frames if frame.offset in wanted}
        return [(key, self._at(key, by_offset[offset])) for offset, key in causes]

    def ordered(self) -> Iterable[str]:
        """Return the record keys of the window, in its order."""
        return (place.key for place in self._order.islice(self._start, self._end))

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return what leaves and what comes in, if the message reaches the window at all."""
        matching = self._matching(frame)
        known = self._records.pop(frame.key, None)
        left: set[str] = set()
        came: set[str] = set()
        if known is not None:
            self._take_out(known.place, left, came)
        if matching:
            place = Place(self._sort_value(frame), frame.key)
            self._records[frame.key] = _Record(place, frame)
            self._put_in(place, left, came)
        # What was pushed over an end and back has not moved. Sorted, so that equal calls give
        # equal outputs: the order of a set is none.
        moves: list[Move] = [(out, self._out(out, frame)) for out in sorted(left - came)]
        moves += [(into, self._at(into, frame)) for into in sorted(came - left)]
        if frame.key in left and frame.key in came:
            moves.append((frame.key, frame))
        return moves

    def _take_out(self, place: Place, left: set[str], came: set[str]) -> None:
        """Take a record out of the order; note who left the window by that, and who came."""
        order, at = self._order, self._order.bisect_left(place)
        del order[at]
        if at >= self._end:
            return  # behind the window: most messages of a large topic end here
        if at >= self._start:
            left.add(place.key)
        elif len(order) >= self._start:  # all behind it move up by one, over the window's start
            left.add(order[self._start - 1].key)
        if len(order) >= self._end:
            came.add(order[self._end - 1].key)

    def _put_in(self, place: Place, left: set[str], came: set[str]) -> None:
        """Put a record into the order; note who left the window by that, and who came."""
        order = self._order
        at = order.bisect_left(place)
        order.add(place)
        if at >= self._end:
            return
        if at >= self._start:
            came.add(place.key)
        elif len(order) > self._start:  # all behind it move down by one, over the window's start
            came.add(order[self._start].key)
        if len(order) > self._end:
            left.add(order[self._end].key)

    def _matching(self, frame: Frame) -> bool:
        return any(not row.removed for _, row in self._rows.moves(frame))

    def _sort_value(self, frame: Frame) -> Any:
        order = self._window.order
        return () if order is None else order.sort_token(frame.payload)

    def _at(self, board_key: str, cause: Frame) -> Frame:
        """Return a record that comes in, as of the message that moved it."""
        record = self._records[board_key].frame
        return Frame(cause.offset, record.payload, record.key, cause.timestamp_ms, record.exempt)

    def _out(self, board_key: str, cause: Frame) -> Frame:
        if board_key == cause.key and cause.removed:
            return cause
        record = self._records.get(board_key)
        now = cause if record is None else self._at(board_key, cause)
        return no_longer_matching(now)
