"""Catch-up: the rows of members that are behind their lane, each key once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidegate.conflation.boards.board import Board, Pair, Pairs
from tidegate.conflation.frame import ROWS_AT_ONCE, Frame
from tidegate.conflation.steps import RowBuild


class CatchUpRows(NamedTuple):
    """Rows for members that are far behind, made in steps, and the id that the last one carries."""

    build: RowBuild
    low_water: int | None


@dataclass(slots=True, eq=False)
class CatchUp:
    """The keys changed up to `position`, each once, in the order in which they had changed.

    Each has the value that is newest when it is sent. Sorted by last change alone, a key that
    never rests would never be reached on a line that is always full. `ahead` has the offsets
    beyond `position` that were sent: the next catch-up leaves them out, as `earlier`. The next one
    waits for a flush: rows taken late belong to the flush that they missed. One that `appends` is a
    queue in publication order: a row that is replaced is left to the next catch-up.
    """

    rows: Sequence[Pair]
    position: int
    appends: bool = False
    sent: int = 0
    ahead: dict[str, int] = field(default_factory=dict)
    earlier: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True if all of it is sent."""
        return self.sent == len(self.rows)

    def take(self, board: Board, bytes_max: int, rows_max: int = ROWS_AT_ONCE) -> list[Frame]:
        """Return the next rows of about `bytes_max` payload bytes, at least one if any is left.

        At most `rows_max` are looked at, so there may be none although rows are left.
        """
        piece: list[Frame] = []
        for board_key, row in self.rows[self.sent : self.sent + rows_max]:
            if self.earlier and self.earlier.get(board_key) == row.offset:
                self.sent += 1
                continue
            newest = _newest(board, board_key, row)
            # In publication order a replaced row would carry a later message at an earlier place:
            # it is left to the next catch-up, where its place is.
            if newest is row or not self.appends:
                bytes_max -= len(newest.payload)
                # One row goes whatever its size: without it a catch-up behind a large row would
                # never end.
                if bytes_max < 0 and piece:
                    break
                piece.append(newest)
                # Its change lies beyond `position`, so the next catch-up would find the same row
                # again.
                if newest is not row:
                    self.ahead[board_key] = newest.offset
            self.sent += 1
        return piece

    def values_left(self) -> set[str]:
        """Return the keys of the values still to come; removals are no values."""
        return {board_key for board_key, row in self._left() if not row.removed}

    def copy(self) -> CatchUp:
        """Return one that goes on from here by itself; the rows are shared."""
        return replace(self, ahead=dict(self.ahead))

    def rest(self, board: Board) -> list[Pair]:
        """Return the rows still to come, as they would be sent now."""
        now = [(known, row, _newest(board, known, row)) for known, row in self._left()]
        return [(known, new) for known, row, new in now if new is row or not self.appends]

    def _left(self) -> Sequence[Pair]:
        return without(self.rows[self.sent :], self.earlier)


def without(rows: Sequence[Pair], sent: Mapping[str, int]) -> Sequence[Pair]:
    """Return the rows but those of which this offset was sent, by key."""
    if not sent:
        return rows
    if isinstance(rows, Pairs):
        return rows.without(sent)
    return [(known, row) for known, row in rows if row.offset != sent.get(known)]


def _newest(board: Board, board_key: str, row: Frame) -> Frame:
    """Return the value that has taken a row's place, or the row itself."""
    # Where messages are exempt, one of them may lie between, and has to be sent as well.
    if row.removed or row.exempt or board.exempts:
        return row
    newest = board.row(board_key, row.offset)
    if newest is None or newest.exempt:
        return row
    return newest
