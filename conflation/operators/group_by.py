"""Group-by: one row for each group of the records that match."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.operators.aggregates import RunningGroup
from tidegate.conflation.operators.filter import FilterOperator, Move, Operator
from tidegate.keys.projection import Projection

Members = dict[str, Frame]
"""The records of a group by key, in the order of last change."""

RUNNING_FROM = 16
"""The least records of a group with running aggregates; recomputing smaller ones is faster."""
STALE_MAX = 1_000
"""Changes that all running aggregates together defer until their rows are made."""
CAUGHT_UP_AT_ONCE = 4
"""Changes that a message applies above `STALE_MAX`: more than it can add."""


class GroupByOperator(Operator):
    """Keeps each group's records; a group's row is made when the board is read.

    A row costs the records of its group that have changed since the last one, so groups that
    change often are made once a flush. While a lane sees every message, each message makes the
    rows of its groups (`set_eager`). A flush after very many changes would have to apply all of
    them, so beyond `STALE_MAX` each message applies some.
    """

    message_cost = 30
    row_cost = 4

    def __init__(self, rows: FilterOperator, projection: Projection) -> None:
        self._rows = rows
        self._projection = projection
        self._is_eager = False
        self._groups: dict[str, Members] = {}
        self._group_of: dict[str, str] = {}
        self._running: dict[str, RunningGroup] = {}
        self._stale = 0  # changes that all running aggregates have deferred
        # Groups whose row is deferred, and the message that changed each of them last, in order.
        self._deferred: dict[str, Frame] = {}

    def copy_for(self, board: Board) -> GroupByOperator:
        """Return the same groups, deferred rows included, for another board."""
        # Running aggregates are left out: a copy makes them of the records when it needs them.
        other = GroupByOperator(self._rows.copy_for(board), self._projection)
        other._groups = {group: dict(members) for group, members in self._groups.items()}
        other._group_of, other._deferred = dict(self._group_of), dict(self._deferred)
        return other

    @property
    def is_eager(self) -> bool:
        """True while each message makes the rows of its groups."""
        return self._is_eager

    def set_eager(self, *, eager: bool) -> None:
        """Make rows with each message from now on, or again once a flush."""
        self._is_eager = eager

    @property
    def deferred_rows(self) -> int:
        """The number of groups that have changed since their rows were made."""
        return len(self._deferred)

    def deferred_keys(self, offset: int) -> list[str]:
        """Return the groups with a deferred row that the message at this offset changed last."""
        return [group for group, cause in self._deferred.items() if cause.offset == offset]

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return the rows of the groups that a message touches, or nothing where that can wait."""
        record_key = frame.key
        matching = any(not row.removed for _, row in self._rows.moves(frame))
        # The group of the record as it was: its new value may say another, or match no more.
        before = self._group_of.pop(record_key, None)
        if before is not None:
            self._note(before, record_key, self._groups[before].pop(record_key))
            self._defer(before, frame)
        if matching:
            group = self._projection.group_key(frame.payload)
            self._group_of[record_key] = group
            records = self._groups.setdefault(group, {})
            records[record_key] = frame
            if len(records) == RUNNING_FROM:
                self._running_group(group, records)
            self._note(group, record_key, None)
            self._defer(group, frame)
        return self.materialize() if self._is_eager else ()

    def materialize(self, rows_max: int | None = None) -> Sequence[Move]:
        """Return the rows of all groups that have changed, or the first ones; empty groups leave.

        A part is in the order of last change, as the whole is, so parts join to it.
        """
        changed = list(islice(self._deferred.items(), rows_max))
        if len(changed) == len(self._deferred):
            # A dict from whose front all was taken keeps their places, and is walked through them.
            self._deferred = {}
        for group, _ in changed[: len(self._deferred)]:
            del self._deferred[group]
        return [(group, self._row(group, cause)) for group, cause in changed]

    def preview(self) -> Sequence[Move]:
        """Return what `materialize` would; a row without its value costs nothing."""
        # For counting alone, so the keys and offsets have to be right, and the values need not be.
        return [
            (group, Frame(cause.offset, b"", group))
            if self._groups[group]
            else (group, Tombstone(cause.offset, b"", group, reason=_reason(cause)))
            for group, cause in self._deferred.items()
        ]

    def _note(self, group: str, record_key: str, before: Frame | None) -> None:
        running = self._running.get(group)
        if running is None:
            return
        self._stale -= running.stale
        running.record_change(record_key, before)
        # Not all at once: many groups reach any bound of their own in the same publish.
        if self._stale + running.stale > STALE_MAX:
            running.catch_up(self._groups[group], CAUGHT_UP_AT_ONCE)
        self._stale += running.stale

    def _defer(self, group: str, cause: Frame) -> None:
        self._deferred.pop(group, None)  # rows are made in the order of last change
        self._deferred[group] = cause

    def _row(self, group: str, cause: Frame) -> Frame:
        records = self._groups[group]
        # A group that has become small is recomputed: running aggregates would save too little.
        if len(records) < RUNNING_FROM and (running := self._running.pop(group, None)) is not None:
            self._stale -= running.stale
        if not records:
            # Not before its row is made: a group that comes back meanwhile has not left.
            del self._groups[group]
            return Tombstone(cause.offset, b"", group, cause.timestamp_ms, reason=_reason(cause))
        if len(records) < RUNNING_FROM:
            row = self._projection.row([record.payload for record in records.values()])
        else:
            running = self._running_group(group, records)
            self._stale -= running.stale
            row = running.row(records)
        return Frame(cause.offset, row, group, cause.timestamp_ms)

    def _running_group(self, group: str, records: Members) -> RunningGroup:
        found = self._running.get(group)
        if found is None:
            found = self._running[group] = RunningGroup(self._projection, records)
            self._stale += found.stale
        return found


def _reason(cause: Frame) -> RemovalReason:
    return cause.reason if isinstance(cause, Tombstone) else RemovalReason.MATCH
