"""The slots of a lane or a backlog by key, and which of them a message may join."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import Accumulator, CombinedRemoval, CombinedRow, combines
from tidegate.keys import patch as patches
from tidegate.keys.merging import Matcher
from tidegate.keys.spec import KeyOf, KeySpec, conflation_key
from tidegate.keys.text.duration import Instant

# Slots: what a lane holds of a key beside the board, in parts that can be put together.


class PendingPart(msgspec.Struct, frozen=True, gc=False):
    """Messages of one key, one after the other, as one: parts in a row join to one part.

    `joins` is the lane's count of joins when it began: a member that joined later than that has
    it in its snapshot. `is_new`: the key was not there before. `gone`: it is not there after.
    `patch` is what the messages changed; None where only the value will do. `count` is None
    where there was nothing but a removal.
    """

    joins: int
    frame: Frame
    count: Receipt | None
    is_new: bool
    gone: Tombstone | None = None
    patch: bytes | None = None
    fold: Accumulator | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def then(self, later: PendingPart) -> PendingPart | None:
        """Both, this one the older; None if a merger will not have them as one."""
        fold = self.fold
        if later.fold is not None:
            fold = later.fold if fold is None else fold.join(later.fold)
            if fold is None:
                return None
        patch = None
        if later.patch is not None and self.patch is not None:
            patch = patches.compose(self.patch, later.patch)
        count = _together(self.count, later.count)
        return PendingPart(self.joins, later.frame, count, self.is_new, later.gone, patch, fold)

    def unreported(self, *, is_new: bool) -> PendingPart:
        """As it counts with the key's next row, nobody having been told of it."""
        fold = None if self.fold is None else self.fold.unreported()
        return msgspec.structs.replace(self, is_new=is_new, fold=fold)

    def keeps_place(self, earlier: PendingPart) -> bool:
        """Whether a merger has kept what was there before, so that it stays where it is."""
        return self.fold is not None and self.fold is earlier.fold and self.gone is None

    def _removal(self, gone: Tombstone, rules: LaneId) -> Tombstone:
        """As it is told, standing for the messages that it takes away."""
        if self.count is None:
            return gone
        fields = {name: getattr(gone, name) for name in Tombstone.__struct_fields__}
        fields |= msgspec.structs.asdict(self.count)
        if not combines(rules):
            return Tombstone(**fields)
        return CombinedRemoval(**{**fields, "rules": rules, "fold": self.fold})

    @property
    def is_unseen(self) -> bool:
        """Whether the key came and went, so that there is nothing to tell."""
        return self.gone is not None and self.is_new

    def row(
        self, payload: bytes, patch: bytes | None, rules: LaneId, *, exempt: bool = False
    ) -> Frame | None:
        """As it is sent; None for a key that came and went."""
        if self.gone is not None:
            if self.is_unseen:
                return None
            return self._removal(self.gone, rules)
        assert self.count is not None
        frame = self.frame
        if combines(rules) and not exempt:
            return CombinedRow(
                frame.offset,
                payload,
                frame.key,
                frame.timestamp_ms,
                first=self.count.first,
                first_ms=self.count.first_ms,
                messages=self.count.messages,
                patch=patch,
                rules=rules,
                published=frame.payload,
                fold=self.fold,
            )
        return Row(
            frame.offset,
            payload,
            frame.key,
            frame.timestamp_ms,
            exempt,
            first=self.count.first,
            first_ms=self.count.first_ms,
            messages=self.count.messages,
            patch=patch,
        )


def _together(older: Receipt | None, newer: Receipt | None) -> Receipt | None:
    if older is None or newer is None:
        return newer if older is None else older
    return older.then(newer)


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


# Segments: the flushes of a lane that somebody is still behind.


@dataclass(slots=True)
class Flush:
    """Slots that were flushed between the position before and this one."""

    position: int
    slots: list[Pending]


class Flushes:
    """As many as members stand at different positions: between them, flushes become one."""

    def __init__(self, lane_id: LaneId) -> None:
        self._lane_id = lane_id
        self._segments: list[Flush] = []

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, position: int, slots: Sequence[Pending]) -> None:
        """A flush."""
        self._segments.append(Flush(position, list(slots)))

    def all(self) -> Iterator[Pending]:
        """The slots of all flushes that somebody is behind."""
        return (slot for segment in self._segments for slot in segment.slots)

    def after(self, position: int, since_join: int) -> PendingKeys:
        """Everything behind a position put together, as far as it began after a join."""
        found = PendingKeys(self._lane_id)
        for segment in self._segments:
            if segment.position > position:
                found.absorb(segment.slots, since_join)
        return found

    def is_next(self, position: int, since_join: int) -> bool:
        """Whether one flush alone is behind a position, and nothing in it was held at a join."""
        newest = self._segments[-1] if self._segments else None
        if newest is None or newest.position != position + 1:
            return False
        return all(slot.began >= since_join for slot in newest.slots)

    def drop(self, positions: set[int]) -> None:
        """Forget what everybody has; make one of neighbours that nobody stands between."""
        oldest = min(positions, default=None)
        kept: list[Flush] = []
        for segment in self._segments:
            if oldest is None or segment.position <= oldest:
                continue
            if kept and kept[-1].position not in positions and not _unseen(kept[-1], segment):
                segment = Flush(segment.position, self._joined(kept.pop(), segment))
            kept.append(segment)
        self._segments = kept

    def _joined(self, older: Flush, newer: Flush) -> list[Pending]:
        both = PendingKeys(self._lane_id)
        both.absorb(older.slots)
        both.absorb(newer.slots)
        return list(both.all())


def _unseen(*segments: Flush) -> bool:
    """Whether some member may have to be told what for others is nothing; such stay apart."""
    return any(slot.unseen for segment in segments for slot in segment.slots)
