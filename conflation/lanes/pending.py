"""The slots of a lane or a backlog by key, and which of them a message may join."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.conflation.boards.board import THE_RECORD
from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import (
    CombinedRow,
    Merges,
    PendingPart,
    Unreported,
    fold_of,
)
from tidegate.keys.merging import Matcher
from tidegate.keys.spec import KeyOf, KeySpec, conflation_key
from tidegate.keys.text.duration import Instant


@dataclass(slots=True, eq=False)
class Pending:
    """A place in a lane's queue: parts of one key, due together.

    `sealed`: never conflated with anything. `order` is its place: the offset of its newest
    message, or with `placement=replace` of its first; `opened` is the first one's, `began` the
    lane's count of joins then. `match` is
    the value of the fields that tell which messages of a key may conflate. `unseen`: the key
    came and went, so that only who joined in between has something to be told. `is_retraction`: it
    began with a removal, which has a slot of its own only where several rows go before it.
    """

    board_key: str
    parts: list[PendingPart]
    due: Instant
    order: int
    opened: int
    began: int = 0
    sealed: bool = False
    match: str = ""
    is_held: bool = True
    unseen: bool = False
    is_retraction: bool = False

    def __deepcopy__(self, memo: object) -> Pending:
        return Pending(
            self.board_key, list(self.parts), self.due, self.order, self.opened, self.began,
            self.sealed, self.match, self.is_held, self.unseen, self.is_retraction,
        )  # fmt: skip

    @property
    def newest(self) -> PendingPart:
        """The part that is still open."""
        return self.parts[-1]

    @property
    def was_joined(self) -> bool:
        """Whether somebody joined while it was held."""
        return self.newest.joins > self.began

    def unreported_parts(self) -> list[PendingPart]:
        """Its parts for those who were here from its beginning; who joined since is told now."""
        older = [part for part in self.parts if part.joins < self.began]
        own = self.whole(self.began)
        assert own is not None
        return [*older, own]

    def stand_for(self, unreported: Sequence[PendingPart]) -> None:
        """Take over parts that nobody was told of; whether the key is new is known by now."""
        if not unreported:
            return
        own = self.parts[0]
        older = [part.unreported(is_new=own.is_new) for part in unreported]
        together = older[-1].then(own) if older[-1].joins == self.began else None
        self.parts[:1] = [*older, own] if together is None else [*older[:-1], together]

    def whole(self, since_join: int = 0) -> PendingPart | None:
        """All parts as one; only those that began after a join."""
        found: PendingPart | None = None
        for part in self.parts:
            if part.joins >= since_join:
                found = part if found is None else _with(found, part)
        return found


def _with(older: PendingPart, newer: PendingPart) -> PendingPart | None:
    """Both as one; of what a merger declines, the older messages are only counted."""
    return older.then(newer) or msgspec.structs.replace(older, fold=None).then(newer)


class PendingKeys:
    """Usually one for each key; several where messages may not conflate with one another."""

    def __init__(self, lane_id: LaneId) -> None:
        self._replaces = lane_id.replaces
        self._matcher = lane_id.match if isinstance(lane_id.match, Matcher) else None
        self._match_of: KeyOf | None = (
            conflation_key(lane_id.match) if isinstance(lane_id.match, KeySpec) else None
        )
        self._slots: dict[str, list[Pending]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> PendingKeys:
        twin: PendingKeys = copy.copy(self)
        twin._slots = {
            board_key: [copy.deepcopy(slot, memo) for slot in slots]
            for board_key, slots in self._slots.items()
        }
        return twin

    def all(self) -> Iterator[Pending]:
        """Every slot, keys in the order in which they were opened."""
        return (slot for slots in self._slots.values() for slot in slots)

    def of_key(self, board_key: str) -> list[Pending]:
        """The slots of one key."""
        return self._slots.get(board_key, [])

    def first(self) -> Pending | None:
        """The slot that was opened first."""
        return next(self.all(), None)

    def has(self, slot: Pending) -> bool:
        """Whether a slot is still here."""
        return slot.is_held

    def elder(self, slot: Pending, *, same_key: bool) -> Pending | None:
        """The slot whose due time a new one shares."""
        found = self._slots[slot.board_key][0] if same_key else self.first()
        return None if found is slot else found

    def merge(
        self,
        board_key: str,
        part: PendingPart,
        *,
        sealed: bool = False,
        apart: Collection[Pending] = (),
    ) -> Pending | None:
        """Let a part join the newest slot that will have it; None if it needs one of its own.

        Slots `apart` have what was flushed together with it, and was not conflated with it.
        """
        slots = self._slots.get(board_key, [])
        if part.gone is not None and slots and (len(slots) > 1 or slots[0].sealed):
            return None  # what is sent before it has to be taken back
        for slot in () if sealed else reversed(slots):
            if slot.sealed or not self._meets(slot, part):
                continue
            earlier = slot.newest
            joined = None if slot in apart else earlier.then(part)
            if joined is None:
                return None
            if earlier.joins == part.joins:
                slot.parts[-1] = joined
            else:
                slot.parts.append(part)
            if not self._replaces and not joined.keeps_place(earlier):
                slot.order = part.frame.offset
            return slot
        return None

    def open(self, board_key: str, part: PendingPart, *, sealed: bool = False) -> Pending:
        """A new slot for a part."""
        offset = part.frame.offset
        order = part.count.first if self._replaces and part.count is not None else offset
        slot = Pending(board_key, [part], 0, order, offset, part.joins, sealed, self._match(part))
        slot.is_retraction = part.gone is not None
        self._slots.setdefault(board_key, []).append(slot)
        return slot

    def absorb(self, flushed: Iterable[Pending], since_join: int = 0) -> None:
        """Take over the slots of a later flush, as far as they began after a join."""
        apart: set[Pending] = set()
        for slot in flushed:
            if not slot.unseen or since_join > slot.began:
                self._absorb(slot, since_join, apart)

    def _absorb(self, slot: Pending, since_join: int, apart: set[Pending]) -> None:
        """Parts stay apart, so that whoever joined between them can still be told them apart."""
        taken: Pending | None = None
        touched: set[Pending] = set()
        for part in slot.parts:
            if part.joins < since_join:
                continue
            if taken is not None:
                taken.parts.append(part)
                continue
            # What stood between them was before the join: nothing keeps them apart any more.
            is_alone = slot.is_retraction and len(self.of_key(slot.board_key)) == 1
            beside = () if is_alone else apart
            joined = self.merge(slot.board_key, part, sealed=slot.sealed, apart=beside)
            if joined is None:
                joined = taken = self.open(slot.board_key, part, sealed=slot.sealed)
                taken.match = slot.match
                if not self._replaces or part is slot.parts[0]:
                    taken.order = slot.order
            touched.add(joined)
        apart |= touched

    def take(self, slot: Pending) -> bool:
        """Take one slot out; False if it is not here any more."""
        if not slot.is_held:
            return False
        slot.is_held = False
        slots = self._slots[slot.board_key]
        slots.remove(slot)
        if not slots:
            del self._slots[slot.board_key]
        return True

    def take_all(self) -> list[Pending]:
        """Take every slot out."""
        slots = list(self.all())
        for slot in slots:
            slot.is_held = False
        self._slots = {}
        return slots

    def _meets(self, slot: Pending, part: PendingPart) -> bool:
        """Whether two messages of a key may conflate with one another (`match`)."""
        if part.frame.removed:
            return True
        if self._matcher is not None:
            return self._matcher.matches(slot.newest.frame.payload, part.frame.payload)
        return self._match_of is None or slot.match == self._match_of(part.frame.payload)

    def _match(self, part: PendingPart) -> str:
        return "" if self._match_of is None else self._match_of(part.frame.payload)


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
