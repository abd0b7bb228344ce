"""An aggregated subscription: one row for each group of the records that match."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.operators.filter import FilterOperator, Move
from tidegate.keys.projection import Projection

Members = dict[str, Frame]


class GroupByOperator:
    """Keeps the records of each group; the row of a group that has changed is made when asked for.

    Aggregates are computed from all records of the group: a removed maximum cannot be undone.
    `is_eager`: a lane sends every change, so that each message makes the rows of its groups.
    """

    def __init__(self, rows: FilterOperator, projection: Projection) -> None:
        self.is_eager = False
        self._rows = rows
        self._projection = projection
        self._groups: dict[str, Members] = {}
        self._group_of: dict[str, str] = {}
        self._stirred: dict[str, Frame] = {}

    def take_over(self, other: GroupByOperator) -> None:
        """Copy the state of another operator."""
        self._groups = {group: dict(members) for group, members in other._groups.items()}
        self._group_of, self._stirred = dict(other._group_of), dict(other._stirred)

    def stirred(self, offset: int) -> list[str]:
        """Return groups whose row is not made yet, and that this message was the last to change."""
        return [group for group, cause in self._stirred.items() if cause.offset == offset]

    @property
    def is_stirred(self) -> bool:
        """True if a group has changed since its row was made."""
        return bool(self._stirred)

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return the rows of the groups that this message changes, unless that can wait."""
        record_key = frame.key
        matching = any(not row.removed for _, row in self._rows.moves(frame))
        before = self._group_of.pop(record_key, None)
        if before is not None:
            del self._groups[before][record_key]
            self._stir(before, frame)
        if matching:
            group = self._projection.group_key(frame.payload)
            self._group_of[record_key] = group
            self._groups.setdefault(group, {})[record_key] = frame
            self._stir(group, frame)
        return self.settle() if self.is_eager else ()

    def settle(self) -> Sequence[Move]:
        """Return the rows of all groups that have changed; an empty group leaves."""
        moves = [(group, self._row(group, cause)) for group, cause in self._stirred.items()]
        self._stirred = {}
        return moves

    def preview(self) -> Sequence[Move]:
        """Return what `settle` would, in rows without values; looking changes nothing."""
        return [
            (group, Frame(cause.offset, b"", group))
            if self._groups[group]
            else (group, Tombstone(cause.offset, b"", group, reason=_reason(cause)))
            for group, cause in self._stirred.items()
        ]

    def _stir(self, group: str, cause: Frame) -> None:
        # Put in at the end, so that rows are made in the order of their last change.
        self._stirred.pop(group, None)
        self._stirred[group] = cause

    def _row(self, group: str, cause: Frame) -> Frame:
        records = self._groups[group]
        if not records:
            del self._groups[group]
            return Tombstone(cause.offset, b"", group, cause.timestamp_ms, reason=_reason(cause))
        row = self._projection.row([record.payload for record in records.values()])
        return Frame(cause.offset, row, group, cause.timestamp_ms)


def _reason(cause: Frame) -> RemovalReason:
    return cause.reason if isinstance(cause, Tombstone) else RemovalReason.MATCH
