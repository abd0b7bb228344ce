"""Top n: the first records by an order, as a live window."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame
from tidegate.conflation.operators.filter import (
    FilterOperator,
    Move,
    Operator,
    no_longer_matching,
)
from tidegate.conflation.subscription import Window

Place = tuple[Any, str]
"""An order's sort value and the record key, which breaks ties."""


class TopNOperator(Operator):
    """Keeps all records that match in order, shows those inside the window.

    A record that comes in is put, one that is pushed out leaves for the reason `match`, as in
    AMPS's paginated subscriptions. A record that comes in because another one left has the offset
    of the message that moved it, so that positions on the board keep rising.
    """

    def __init__(self, rows: FilterOperator, window: Window) -> None:
        self._rows = rows
        self._window = window
        self._order: list[Place] = []
        self._records: dict[str, tuple[Place, Frame]] = {}
        self._shown: set[str] = set()

    def copy_for(self, board: Board) -> TopNOperator:
        """Return the same window, with its order, for another board."""
        other = TopNOperator(self._rows.copy_for(board), self._window)
        other._order, other._records = list(self._order), dict(self._records)
        other._shown = self._shown  # replaced as a whole, never changed
        return other

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return what leaves and what comes in, if the message reaches the window at all."""
        board_key = frame.key
        matching = self._matching(frame)
        known = self._records.pop(board_key, None)
        if known is None and not matching:
            return ()
        lowest = len(self._order)
        if known is not None:
            lowest = bisect_left(self._order, known[0])
            del self._order[lowest]
        if matching:
            place = (self._sort_value(frame), board_key)
            lowest = min(lowest, bisect_left(self._order, place))
            insort(self._order, place)
            self._records[board_key] = (place, frame)
        # Places behind the window moved and none in it: most messages of a large topic end here.
        if lowest >= self._window.skip_n + self._window.top_n:
            return ()
        return self._moved(frame, changed=board_key if matching else None)

    def _matching(self, frame: Frame) -> bool:
        return any(not row.removed for _, row in self._rows.moves(frame))

    def _sort_value(self, frame: Frame) -> Any:
        order = self._window.order
        return () if order is None else order.sort_token(frame.payload)

    def _moved(self, frame: Frame, changed: str | None) -> list[Move]:
        start = self._window.skip_n
        now = {board_key for _, board_key in self._order[start : start + self._window.top_n]}
        # Sorted, so that equal calls give equal outputs: the order of a set is none.
        moves: list[Move] = [(out, self._out(out, frame)) for out in sorted(self._shown - now)]
        moves += [(into, self._at(into, frame)) for into in sorted(now - self._shown)]
        if changed in now and changed in self._shown:
            moves.append((changed, frame))
        self._shown = now
        return moves

    def _at(self, board_key: str, cause: Frame) -> Frame:
        """Return a record that comes in, as of the message that moved it."""
        record = self._records[board_key][1]
        return Frame(cause.offset, record.payload, record.key, cause.timestamp_ms, record.exempt)

    def _out(self, board_key: str, cause: Frame) -> Frame:
        if board_key == cause.key and cause.removed:
            return cause
        record = self._records.get(board_key)
        now = cause if record is None else self._at(board_key, cause)
        return no_longer_matching(now)
