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

    Each has the value that is newest when it is sent. Ordering by last change alone would starve
    keys that change constantly on a saturated connection. `ahead` has the offsets beyond `position`
    that were sent; the next catch-up leaves them out, as `earlier`. The next catch-up begins with a
    flush: rows that are taken late belong to the flush that was missed. One that `appends` is a
    queue in publication order: a row that was replaced is left to the next catch-up.
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

    def next_rows(self, board: Board, bytes_max: int, rows_max: int = ROWS_AT_ONCE) -> list[Frame]:
        """Return the next rows, of about `bytes_max` payload bytes.

        At least one, unless all of the `rows_max` rows that it reads are left out.
        """
        piece: list[Frame] = []
        for board_key, row in self.rows[self.sent : self.sent + rows_max]:
            if self.earlier and self.earlier.get(board_key) == row.offset:
                self.sent += 1
                continue
            newest = _newest(board, board_key, row)
            # In publication order the newer value belongs to a later place, in the next catch-up.
            if newest is row or not self.appends:
                bytes_max -= len(newest.payload)
                # The first row is sent whatever its size, or a large row would never be sent.
                if bytes_max < 0 and piece:
                    break
                piece.append(newest)
                # The newer value lies beyond `position`, so the next catch-up would send it again.
                if newest is not row:
                    self.ahead[board_key] = newest.offset
            self.sent += 1
        return piece

    def values_left(self) -> set[str]:
        """Return the keys of the values still to come; removals are no values."""
        return {board_key for board_key, row in self._left() if not row.removed}

    def copy(self) -> CatchUp:
        """Return a copy that moves separately; the rows are shared."""
        return replace(self, ahead=dict(self.ahead))

    def rest(self, board: Board) -> list[Pair]:
        """Return the rows still to come, as they would be sent now."""
        now = [(known, row, _newest(board, known, row)) for known, row in self._left()]
        return [(known, new) for known, row, new in now if new is row or not self.appends]

    def _left(self) -> Sequence[Pair]:
        return without(self.rows[self.sent :], self.earlier)


def without(rows: Sequence[Pair], sent: Mapping[str, int]) -> Sequence[Pair]:
    """Return the rows without those that were sent; `sent` has the offset of each by key."""
    if not sent:
        return rows
    if isinstance(rows, Pairs):
        return rows.without(sent)
    return [(known, row) for known, row in rows if row.offset != sent.get(known)]


def _newest(board: Board, board_key: str, row: Frame) -> Frame:
    """Return the value that has replaced a row, or the row itself."""
    # An exempt message between the two would have to be sent as well.
    if row.removed or row.exempt or board.exempts:
        return row
    newest = board.row(board_key, row.offset)
    if newest is None or newest.exempt:
        return row
    return newest
