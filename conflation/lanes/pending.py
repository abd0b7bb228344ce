"""Pending entries: what a lane or a backlog holds of each key, and which entry a message joins.

An entry consists of parts, cut where members join. Parts are immutable and join associatively in
publication order, as accumulators do: what a slow or late member gets is a join of parts.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec

from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone
from tidegate.conflation.lanes.accumulate import (
    Accumulator,
    CombinedRemoval,
    CombinedRow,
    combines,
)
from tidegate.conflation.subscription import LaneId
from tidegate.keys import patch as patches
from tidegate.keys.merging import Matcher
from tidegate.keys.spec import KeyOf, KeySpec, conflation_key
from tidegate.keys.text.duration import Instant


class PendingPart(msgspec.Struct, frozen=True, gc=False):
    """Consecutive messages of one key as one; consecutive parts join to one part.

    `joins` is the lane's count of joins when it began: a member that joined later has it in its
    snapshot. `is_new`: the key was not there before. `gone`: it is not there after. `patch` is
    what the messages changed; None where only the value can be sent. `count` is None for a
    removal alone.
    """

    joins: int
    frame: Frame
    count: Receipt | None
    is_new: bool
    gone: Tombstone | None = None
    patch: bytes | None = None
    accumulator: Accumulator | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def then(self, later: PendingPart) -> PendingPart | None:
        """Join a later part; None if a merger declines."""
        accumulator = self.accumulator or later.accumulator
        if self.accumulator is not None and later.accumulator is not None:
            accumulator = self.accumulator.join(later.accumulator)
            if accumulator is None:
                return None
        patch = None
        # One message that has no patch leaves nothing to compose with: its base was never sent.
        if later.patch is not None and self.patch is not None:
            patch = patches.compose(self.patch, later.patch)
        count = _together(self.count, later.count)
        # New as it was before the first message, gone as it is after the last: so parts of parts
        # join in any grouping.
        return PendingPart(
            self.joins, later.frame, count, self.is_new, later.gone, patch, accumulator
        )

    def as_unreported(self, *, is_new: bool) -> PendingPart:
        """Return what counts with the key's next row, as no row of this part is sent."""
        accumulator = None if self.accumulator is None else self.accumulator.unreported()
        return msgspec.structs.replace(self, is_new=is_new, accumulator=accumulator)

    def keeps_place(self, earlier: PendingPart) -> bool:
        """Return True if a merger kept the message before, which then keeps its place."""
        return (
            self.accumulator is not None
            # By identity: a merger that keeps the message before answers with the same accumulator.
            # Its place then stays, too, as in Diffusion.
            and self.accumulator is earlier.accumulator
            and self.gone is None
        )

    def _removal(self, gone: Tombstone, rules: LaneId) -> Tombstone:
        """Return the removal as it is sent, standing for the messages that it takes away."""
        if self.count is None:
            return gone
        fields = {name: getattr(gone, name) for name in Tombstone.__struct_fields__}
        fields |= msgspec.structs.asdict(self.count)
        if not combines(rules):
            return Tombstone(**fields)
        return CombinedRemoval(**{**fields, "rules": rules, "accumulator": self.accumulator})

    @property
    def is_unseen(self) -> bool:
        """True if the key came and went, so that there is nothing to send."""
        return self.gone is not None and self.is_new

    def row(
        self, payload: bytes, patch: bytes | None, rules: LaneId, *, exempt: bool = False
    ) -> Frame | None:
        """Return the part as it is sent; None for a key that came and went."""
        if self.gone is not None:
            if self.is_unseen:
                return None
            return self._removal(self.gone, rules)
        assert self.count is not None
        frame = self.frame
        # An exempt row offers nothing to join: as a `CombinedRow` a conflated queue would combine
        # it.
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
                accumulator=self.accumulator,
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

    A part begins where a member joins: members that joined between the same two parts get equal
    rows. `sealed`: never conflated with anything. `send_order` is its place in the queue: the
    offset of its newest message, or with `placement=replace` of its first. `first_offset` is the
    offset of its first message, `joins_at_open` the lane's count of joins then. `match` is the
    value of the fields that decide which messages of a key may conflate. `unseen`: the key came
    and went, so that only members that joined in between are sent something. `is_retraction`: it
    began with a removal, which has an entry of its own only where several rows go before it.
    """

    board_key: str
    parts: list[PendingPart]
    due: Instant
    send_order: int
    first_offset: int
    joins_at_open: int = 0
    sealed: bool = False
    match: str = ""
    is_held: bool = True
    unseen: bool = False
    is_retraction: bool = False

    def __deepcopy__(self, memo: object) -> Pending:
        # Parts are immutable and shared; their list grows, so each copy has its own.
        return replace(self, parts=list(self.parts))

    @property
    def newest(self) -> PendingPart:
        """The part that messages still join."""
        return self.parts[-1]

    @property
    def was_joined(self) -> bool:
        """True if a member joined while it was held."""
        return self.newest.joins > self.joins_at_open

    def unreported_parts(self) -> list[PendingPart]:
        """Return its parts for members older than it; those that joined since get a row now."""
        older = [part for part in self.parts if part.joins < self.joins_at_open]
        own = self.whole(self.joins_at_open)
        assert own is not None
        return [*older, own]

    def stand_for(self, unreported: Sequence[PendingPart]) -> None:
        """Put parts before its own of which no row was sent."""
        if not unreported:
            return
        own = self.parts[0]
        # A key that came and went in them was not there before: only now it is known to be new.
        older = [part.as_unreported(is_new=own.is_new) for part in unreported]
        # Parts of one join become one; others stay apart for members that joined between them.
        together = older[-1].then(own) if older[-1].joins == self.joins_at_open else None
        self.parts[:1] = [*older, own] if together is None else [*older[:-1], together]

    def whole(self, since_join: int = 0) -> PendingPart | None:
        """Join all parts, or those that began after a join; None if there is none."""
        found: PendingPart | None = None
        for part in self.parts:
            if part.joins >= since_join:
                found = part if found is None else _with(found, part)
        return found


def _with(older: PendingPart, newer: PendingPart) -> PendingPart:
    """Join two parts; where a merger declines, the older messages are only counted."""
    joined = older.then(newer)
    if joined is None:
        joined = msgspec.structs.replace(older, accumulator=None).then(newer)
        assert joined is not None, "without an accumulator nothing declines"
    return joined


class PendingKeys:
    """Pending entries by key: usually one; several where messages may not conflate."""

    def __init__(self, lane_id: LaneId) -> None:
        self._replaces = lane_id.replaces
        self._matcher = lane_id.match if isinstance(lane_id.match, Matcher) else None
        self._match_of: KeyOf | None = (
            conflation_key(lane_id.match) if isinstance(lane_id.match, KeySpec) else None
        )
        self._entries: dict[str, list[Pending]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> PendingKeys:
        twin: PendingKeys = copy.copy(self)
        twin._entries = {
            board_key: [copy.deepcopy(entry, memo) for entry in entries]
            for board_key, entries in self._entries.items()
        }
        return twin

    def all(self) -> Iterator[Pending]:
        """Return every entry, keys in the order in which they were opened."""
        return (entry for entries in self._entries.values() for entry in entries)

    def of_key(self, board_key: str) -> list[Pending]:
        """Return the entries of one key."""
        return self._entries.get(board_key, [])

    def first(self) -> Pending | None:
        """Return the entry that was opened first."""
        return next(self.all(), None)

    def elder(self, entry: Pending, *, same_key: bool) -> Pending | None:
        """Return the entry whose due time a new one shares; None if it has its own."""
        found = self._entries[entry.board_key][0] if same_key else self.first()
        return None if found is entry else found

    def merge(
        self,
        board_key: str,
        part: PendingPart,
        *,
        sealed: bool = False,
        apart: Collection[Pending] = (),
    ) -> Pending | None:
        """Join a part to the newest entry that accepts it; None if it needs one of its own.

        Entries `apart` were flushed together with it and were not conflated with it.
        """
        entries = self._entries.get(board_key, [])
        if part.gone is not None and entries and (len(entries) > 1 or entries[0].sealed):
            return None  # rows that go before it have to be taken back by a row of its own
        if sealed:
            return None
        # The newest first: it is the nearest in publication order of those that would accept the
        # part.
        for entry in reversed(entries):
            if entry.sealed or not self._meets(entry, part):
                continue
            earlier = entry.newest
            joined = None if entry in apart else earlier.then(part)
            # A merger that declines decides for older entries as well: in one of those the message
            # would overtake the one that it may not join.
            if joined is None:
                return None
            # A member has joined in between: it must get the newer part alone.
            if earlier.joins == part.joins:
                entry.parts[-1] = joined
            else:
                entry.parts.append(part)
            if not self._replaces and not joined.keeps_place(earlier):
                entry.send_order = part.frame.offset
            return entry
        return None

    def open(self, board_key: str, part: PendingPart, *, sealed: bool = False) -> Pending:
        """Open an entry for a part."""
        offset = part.frame.offset
        order = part.count.first if self._replaces and part.count is not None else offset
        entry = Pending(
            board_key,
            [part],
            due=0,
            send_order=order,
            first_offset=offset,
            joins_at_open=part.joins,
            sealed=sealed,
            match=self._match(part),
            is_retraction=part.gone is not None,
        )
        self._entries.setdefault(board_key, []).append(entry)
        return entry

    def absorb(self, flushed: Iterable[Pending], since_join: int = 0) -> None:
        """Take over the entries of a later flush, or their parts that began after a join."""
        apart: set[Pending] = set()
        for entry in flushed:
            # A key that came and went has a row only for members that joined in between: they have
            # it in their snapshot.
            if not entry.unseen or since_join > entry.joins_at_open:
                self._absorb(entry, since_join, apart)

    def _absorb(self, entry: Pending, since_join: int, apart: set[Pending]) -> None:
        """Take over an entry; its parts stay apart, for members that joined between them."""
        taken: Pending | None = None
        touched: set[Pending] = set()
        for part in entry.parts:
            if part.joins < since_join:
                continue
            if taken is not None:
                taken.parts.append(part)
                continue
            # What kept them apart was before the join, and is not here.
            is_alone = entry.is_retraction and len(self.of_key(entry.board_key)) == 1
            beside = () if is_alone else apart
            joined = self.merge(entry.board_key, part, sealed=entry.sealed, apart=beside)
            if joined is None:
                joined = taken = self.open(entry.board_key, part, sealed=entry.sealed)
                taken.match = entry.match
                if not self._replaces or part is entry.parts[0]:
                    taken.send_order = entry.send_order
            touched.add(joined)
        apart |= touched

    def take(self, entry: Pending) -> bool:
        """Take one entry out; False if it is not here any more."""
        if not entry.is_held:
            return False
        entry.is_held = False
        entries = self._entries[entry.board_key]
        entries.remove(entry)
        if not entries:
            del self._entries[entry.board_key]
        return True

    def take_all(self) -> list[Pending]:
        """Take every entry out."""
        entries = list(self.all())
        # Other structures, such as a heap of due times, may still refer to an entry.
        for entry in entries:
            entry.is_held = False
        self._entries = {}
        return entries

    def _meets(self, entry: Pending, part: PendingPart) -> bool:
        """Return True if a message may conflate with those of an entry (`match`)."""
        if part.frame.removed:  # it ends the record, whatever its fields were
            return True
        if self._matcher is not None:
            return self._matcher.matches(entry.newest.frame.payload, part.frame.payload)
        return self._match_of is None or entry.match == self._match(part)

    def _match(self, part: PendingPart) -> str:
        return "" if self._match_of is None else self._match_of(part.frame.payload)
