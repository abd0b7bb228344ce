"""A part: consecutive messages of one key between two joins of members, as one.

Parts are immutable and join associatively in publication order, as accumulators do.
"""

from __future__ import annotations

from typing import Self

import msgspec

from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone
from tidegate.conflation.lanes.accumulate import (
    Accumulator,
    CombinedRemoval,
    CombinedRow,
    Unreported,
    combines,
)
from tidegate.conflation.subscription import LaneId
from tidegate.keys import patch as patches


class PendingPart(msgspec.Struct, frozen=True, gc=False):
    """Consecutive messages of one key as one; consecutive parts join to one part.

    `joins` is the lane's count of joins when it began: a member that joined later has it in its
    snapshot. `is_new`: the key was not there before. `gone`: it is not there after. `is_back`: it
    is there after, and left meanwhile. `patch` is what the messages changed; None where only the
    value can be sent. `count` is None for a removal alone.
    """

    joins: int
    frame: Frame
    count: Receipt | None
    is_new: bool
    gone: Tombstone | None = None
    patch: bytes | None = None
    accumulator: Accumulator | None = None
    is_back: bool = False

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
        # If one of the messages has no patch, only the value can be sent.
        if later.patch is not None and self.patch is not None:
            patch = patches.compose(self.patch, later.patch)
        count = _together(self.count, later.count)
        # Associative: `is_new` is as before the first message, `gone` as after the last.
        has_left = self.gone is not None or self.is_back or later.is_back
        is_back = has_left and later.gone is None
        return PendingPart(
            self.joins, later.frame, count, self.is_new, later.gone, patch, accumulator, is_back
        )

    def as_unreported(self, *, is_new: bool) -> PendingPart:
        """Return the part as it counts with the key's next row, if no row of it is sent."""
        accumulator = None if self.accumulator is None else self.accumulator.unreported()
        return msgspec.structs.replace(self, is_new=is_new, accumulator=accumulator)

    def unreported(self, rules: LaneId) -> Unreported:
        """Return what counts although no row is sent; a removal of nothing counts nothing."""
        count = self.count or Receipt(0, self.frame.offset, self.frame.timestamp_ms)
        accumulator = None if self.accumulator is None else self.accumulator.unreported()
        return Unreported(count, rules.merge, accumulator)

    def keeps_place(self, earlier: PendingPart) -> bool:
        """Return True if a merger kept the message before, which then keeps its place."""
        return (
            self.accumulator is not None
            # By identity: a merger that keeps the earlier message returns the same accumulator. It
            # then keeps its place, too, as in Diffusion.
            and self.accumulator is earlier.accumulator
            and self.gone is None
        )

    def _removal(self, gone: Tombstone, rules: LaneId) -> Tombstone:
        """Return the removal as it is sent, which counts the messages before it."""
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
        # An exempt row must not be a `CombinedRow`, which a conflated queue would combine.
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


def joined_parts(older: PendingPart, newer: PendingPart) -> PendingPart:
    """Join two parts; where a merger declines, the older messages are only counted."""
    joined = older.then(newer)
    if joined is None:
        joined = msgspec.structs.replace(older, accumulator=None).then(newer)
        assert joined is not None, "without an accumulator nothing declines"
    return joined
