"""Group-by: one row for each group of the records that match."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.operators.filter import FilterOperator, Move, Operator
from tidegate.keys.projection import Projection

Members = dict[str, Frame]


class GroupByOperator(Operator):
    """Keeps each group's records; a group's row is made when the board is looked at.

    A row costs all records of its group, so groups that change often are made once a flush. While
    a lane looks at every message, each message makes the rows of its groups (`set_eager`).
    """

    def __init__(self, rows: FilterOperator, projection: Projection) -> None:
        self._rows = rows
        self._projection = projection
        self._is_eager = False
        self._groups: dict[str, Members] = {}
        self._group_of: dict[str, str] = {}
        # Groups whose row is put off, and the message that changed each of them last, in order.
        self._unsettled: dict[str, Frame] = {}

    def copy_for(self, board: Board) -> GroupByOperator:
        """Return the same groups, rows put off included, for another board."""
        other = GroupByOperator(self._rows.copy_for(board), self._projection)
        other._groups = {group: dict(members) for group, members in self._groups.items()}
        other._group_of, other._unsettled = dict(self._group_of), dict(self._unsettled)
        return other

    @property
    def is_eager(self) -> bool:
        """True while each message makes the rows of its groups."""
        return self._is_eager

    def set_eager(self, *, eager: bool) -> None:
        """Make rows with each message from now on, or again once a flush."""
        self._is_eager = eager

    @property
    def is_settled(self) -> bool:
        """True if no group has changed since its row was made."""
        return not self._unsettled

    def unsettled(self, offset: int) -> list[str]:
        """Return the groups that the message at this offset changed last, their rows put off."""
        return [group for group, cause in self._unsettled.items() if cause.offset == offset]

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return the rows of the groups that a message touches, or nothing where that can wait."""
        record_key = frame.key
        matching = any(not row.removed for _, row in self._rows.moves(frame))
        before = self._group_of.pop(record_key, None)
        if before is not None:
            del self._groups[before][record_key]
            self._put_off(before, frame)
        if matching:
            group = self._projection.group_key(frame.payload)
            self._group_of[record_key] = group
            self._groups.setdefault(group, {})[record_key] = frame
            self._put_off(group, frame)
        return self.settle() if self._is_eager else ()

    def settle(self) -> Sequence[Move]:
        """Return the rows of all groups that have changed; an empty group leaves."""
        moves = [(group, self._row(group, cause)) for group, cause in self._unsettled.items()]
        self._unsettled = {}
        return moves

    def preview(self) -> Sequence[Move]:
        """Return what `settle` would; a row without its value costs nothing."""
        return [
            (group, Frame(cause.offset, b"", group))
            if self._groups[group]
            else (group, Tombstone(cause.offset, b"", group, reason=_reason(cause)))
            for group, cause in self._unsettled.items()
        ]

    def _put_off(self, group: str, cause: Frame) -> None:
        self._unsettled.pop(group, None)  # rows are made in the order of last change
        self._unsettled[group] = cause

    def _row(self, group: str, cause: Frame) -> Frame:
        records = self._groups[group]
        if not records:
            del self._groups[group]
            return Tombstone(cause.offset, b"", group, cause.timestamp_ms, reason=_reason(cause))
        row = self._projection.row([record.payload for record in records.values()])
        return Frame(cause.offset, row, group, cause.timestamp_ms)


def _reason(cause: Frame) -> RemovalReason:
    return cause.reason if isinstance(cause, Tombstone) else RemovalReason.MATCH
