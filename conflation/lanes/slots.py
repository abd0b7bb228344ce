"""The slots of a lane or a backlog by key, and which of them a message may join."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from conflation.lane_id import LaneId
from conflation.lanes.slot import Part, Slot
from keys.extract import KeyOf, conflation_key
from keys.merging import Matcher
from keys.spec import KeySpec


class Slots:
    """Usually one for each key; several where messages may not conflate with one another."""

    def __init__(self, lane_id: LaneId) -> None:
        self._replaces = lane_id.replaces
        self._matcher = lane_id.match if isinstance(lane_id.match, Matcher) else None
        self._match_of: KeyOf | None = (
            conflation_key(lane_id.match) if isinstance(lane_id.match, KeySpec) else None
        )
        self._slots: dict[str, list[Slot]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Slots:
        twin: Slots = copy.copy(self)
        twin._slots = {
            board_key: [copy.deepcopy(slot, memo) for slot in slots]
            for board_key, slots in self._slots.items()
        }
        return twin

    def all(self) -> Iterator[Slot]:
        """Every slot, keys in the order in which they were opened."""
        return (slot for slots in self._slots.values() for slot in slots)

    def of_key(self, board_key: str) -> list[Slot]:
        """The slots of one key."""
        return self._slots.get(board_key, [])

    def first(self) -> Slot | None:
        """The slot that was opened first."""
        return next(self.all(), None)

    def has(self, slot: Slot) -> bool:
        """Whether a slot is still here."""
        return slot.is_held

    def elder(self, slot: Slot, *, same_key: bool) -> Slot | None:
        """The slot whose due time a new one shares."""
        found = self._slots[slot.board_key][0] if same_key else self.first()
        return None if found is slot else found

    def merge(
        self,
        board_key: str,
        part: Part,
        *,
        sealed: bool = False,
        apart: Collection[Slot] = (),
    ) -> Slot | None:
        """Let a part join the newest slot that will have it; None if it needs one of its own.

        Slots `apart` have what was flushed together with it, and was not conflated with it.
        """
        slots = self._slots.get(board_key, [])
        if part.gone is not None and slots and (len(slots) > 1 or slots[0].sealed):
            return None  # what is sent before it has to be taken back
        for slot in () if sealed else reversed(slots):
            if slot.sealed or not self._meets(slot, part):
                continue
            joined = None if slot in apart else slot.newest.then(part)
            if joined is None:
                return None
            if slot.newest.joins == part.joins:
                slot.parts[-1] = joined
            else:
                slot.parts.append(part)
            if not self._replaces:
                slot.order = part.frame.offset
            return slot
        return None

    def open(self, board_key: str, part: Part, *, sealed: bool = False) -> Slot:
        """A new slot for a part."""
        offset = part.frame.offset
        order = part.count.first if self._replaces and part.count is not None else offset
        slot = Slot(board_key, [part], 0, order, offset, part.joins, sealed, self._match(part))
        slot.takes_back = part.gone is not None
        self._slots.setdefault(board_key, []).append(slot)
        return slot

    def absorb(self, flushed: Iterable[Slot], since_join: int = 0) -> None:
        """Take over the slots of a later flush, as far as they began after a join."""
        apart: set[Slot] = set()
        for slot in flushed:
            if not slot.unseen or since_join > slot.began:
                self._absorb(slot, since_join, apart)

    def _absorb(self, slot: Slot, since_join: int, apart: set[Slot]) -> None:
        """Parts stay apart, so that whoever joined between them can still be told them apart."""
        taken: Slot | None = None
        touched: set[Slot] = set()
        for part in slot.parts:
            if part.joins < since_join:
                continue
            if taken is not None:
                taken.parts.append(part)
                continue
            # What stood between them was before the join: nothing keeps them apart any more.
            is_alone = slot.takes_back and len(self.of_key(slot.board_key)) == 1
            beside = () if is_alone else apart
            joined = self.merge(slot.board_key, part, sealed=slot.sealed, apart=beside)
            if joined is None:
                joined = taken = self.open(slot.board_key, part, sealed=slot.sealed)
                taken.match = slot.match
                if not self._replaces or part is slot.parts[0]:
                    taken.order = slot.order
            touched.add(joined)
        apart |= touched

    def take(self, slot: Slot) -> bool:
        """Take one slot out; False if it is not here any more."""
        if not slot.is_held:
            return False
        slot.is_held = False
        slots = self._slots[slot.board_key]
        slots.remove(slot)
        if not slots:
            del self._slots[slot.board_key]
        return True

    def take_all(self) -> list[Slot]:
        """Take every slot out."""
        slots = list(self.all())
        for slot in slots:
            slot.is_held = False
        self._slots = {}
        return slots

    def _meets(self, slot: Slot, part: Part) -> bool:
        """Whether two messages of a key may conflate with one another (`match`)."""
        if part.frame.removed:
            return True
        if self._matcher is not None:
            return self._matcher.matches(slot.newest.frame.payload, part.frame.payload)
        return self._match_of is None or slot.match == self._match_of(part.frame.payload)

    def _match(self, part: Part) -> str:
        return "" if self._match_of is None else self._match_of(part.frame.payload)
