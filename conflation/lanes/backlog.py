"""A backlog: one member's queue of every message, conflated, where no board can answer for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import CombinedRow, fold_of
from tidegate.conflation.lanes.merges import Merges
from tidegate.conflation.lanes.pending import Pending, PendingKeys, PendingPart
from tidegate.conflation.lanes.unreported import Unreported
from tidegate.conflation.operators.filter import THE_RECORD

WasThere = Callable[[str, int], bool]
"""Whether a key was on the board at an offset."""


class Backlog:
    """Rows put together to one value or one composite delta for each key, the shorter of the two.

    As Diffusion does it on back pressure. It takes rows as they are told, after one another, and
    gives them away from its old end; `rules` are those of the topic: what merges, what may not
    meet, who keeps whose place.
    """

    def __init__(self, rules: LaneId, merges: Merges | None = None) -> None:
        """`merges`: what the registered merger of these rules has answered to other queues."""
        self._rules = rules
        self._slots = PendingKeys(rules)
        self._fold = fold_of(rules.merge, merges)
        self._rows: list[tuple[Pending, Frame]] | None = None

    def take_unseen(self) -> list[tuple[str, Unreported]]:
        """Take out the messages of keys that came and went, by row key: no row reports them."""
        unseen = [slot for slot in self._slots.all() if slot.newest.is_unseen]
        for slot in unseen:
            self._slots.take(slot)
        parts = [(slot.newest, slot.newest.count) for slot in unseen]
        merge = self._rules.merge
        return [
            (part.frame.key, Unreported(count, merge, part.fold and part.fold.unreported()))
            for part, count in parts
            if count is not None
        ]

    def absorb(self, rows: Iterable[Frame], was_there: WasThere) -> None:
        """Take in what came after everything that is here."""
        for row in rows:
            board_key = row.key if self._rules.feed.key_spec else THE_RECORD
            part = self._part(row, board_key, was_there)
            if self._slots.merge(board_key, part, sealed=row.exempt) is None:
                self._open(board_key, part, sealed=row.exempt)
        self._rows = None

    def rows(self) -> Sequence[Frame]:
        """What is here, in the order in which it goes."""
        return [row for _, row in self._ordered()]

    def took(self, count: int) -> None:
        """So many of the first rows have gone."""
        ordered = self._ordered()
        for slot, _ in ordered[:count]:
            self._slots.take(slot)
        self._rows = ordered[count:]

    def _open(self, board_key: str, part: PendingPart, *, sealed: bool) -> None:
        """A slot of its own; beside another of its key a delta has no base."""
        others = self._slots.of_key(board_key)
        for slot in others:
            slot.parts[-1] = msgspec.structs.replace(slot.newest, patch=None)
        if others:
            part = msgspec.structs.replace(part, patch=None)
        self._slots.open(board_key, part, sealed=sealed)

    def _part(self, row: Frame, board_key: str, was_there: WasThere) -> PendingPart:
        is_new = self._rules.oof and not was_there(board_key, row.offset - 1)
        count = receipt_of(row)
        if isinstance(row, Tombstone):
            counted = count if count.messages else None
            return PendingPart(0, row, counted, is_new=False, gone=row)
        patch = row.patch if isinstance(row, Row) else None
        fold = None if self._fold is None else self._fold(row.payload)
        if isinstance(row, CombinedRow) and row.rules.merge == self._rules.merge:
            fold = row.fold
        return PendingPart(0, row, count, is_new=is_new, patch=patch, fold=fold)

    def _ordered(self) -> list[tuple[Pending, Frame]]:
        if self._rows is None:
            self._rows = [
                (slot, row)
                for slot in sorted(self._slots.all(), key=self._place)
                if (row := self._row(slot)) is not None
            ]
        return self._rows

    def _place(self, slot: Pending) -> int:
        """Where deltas follow, the newest value of a key is its last row."""
        in_order = not self._rules.delta or len(self._slots.of_key(slot.board_key)) == 1
        return slot.order if in_order else slot.newest.frame.offset

    def _row(self, slot: Pending) -> Frame | None:
        part = slot.whole()
        assert part is not None
        payload = part.frame.payload if part.fold is None else part.fold.payload()
        is_shorter = part.patch is not None and len(part.patch) < len(payload)
        patch = part.patch if is_shorter else None
        return part.row(payload, patch, self._rules, exempt=slot.sealed)
