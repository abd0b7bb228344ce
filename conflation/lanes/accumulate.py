"""Messages of one key put together: by reducers, by mergers, and as parts of what is held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import msgspec

from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import LaneId
from tidegate.keys import patch as patches
from tidegate.keys.merging import Matcher, Merger, Verdict
from tidegate.keys.reducers import Merged, Reduce
from tidegate.keys.spec import conflation_key

MERGES_BYTES_MAX = 32 << 20
"""What the merges of one lane may take up; beyond that the oldest are made again."""

_ENTRY_BYTES = 200


class Merges:
    """Answers of a registered merger, by the two messages that it was asked about.

    Diffusion caches them, too: "merges of identical message pairs are not repeated for different
    clients". Queues that do not begin with the same message share no pair. Failures are answers
    as well, and are reported once.
    """

    def __init__(self, merger: Merger) -> None:
        self.merger = merger
        self._bytes = 0
        self._answers: dict[tuple[bytes, bytes], bytes | Verdict] = {}

    def __len__(self) -> int:
        return len(self._answers)

    @classmethod
    def of(cls, merge: Reduce | Merger | None) -> Merges | None:
        """Of a registered merger; reducers are cheap, and asked each time."""
        return cls(merge) if isinstance(merge, Merger) else None

    def __deepcopy__(self, memo: object) -> Merges:
        return self  # an answer is the same for whoever asks

    def answer(self, current: bytes, new: bytes) -> bytes | Verdict:
        """What the merger says of two messages, the older one first."""
        known = self._answers.get((current, new))
        if known is None:
            known = self._answers[current, new] = self.merger.answer(current, new)
            self._bytes += _size(new, known)
            while self._bytes > MERGES_BYTES_MAX:
                self._drop_oldest()
        return known

    def forget(self) -> None:
        """Drop all answers: no queue has any of these messages left to merge."""
        self._answers.clear()
        self._bytes = 0

    def _drop_oldest(self) -> None:
        pair = next(iter(self._answers))
        self._bytes -= _size(pair[1], self._answers.pop(pair))


def _size(new: bytes, answer: bytes | Verdict) -> int:
    """The older message of a pair is an earlier answer, and counted there."""
    return _ENTRY_BYTES + len(new) + (0 if isinstance(answer, Verdict) else len(answer))


class Accumulator(Protocol):
    """Messages of one key combined in publication order; immutable."""

    def add(self, payload: bytes) -> Accumulator | None:
        """With one more message; None: no conflation, both are to be sent."""

    def join(self, later: Accumulator) -> Accumulator | None:
        """With what was combined of later messages by the same rules."""

    def payload(self) -> bytes:
        """The combined message."""

    def unreported(self) -> Accumulator | None:
        """What of it goes into the key's next row, if nobody is told of it."""


def fold_of(
    merge: Reduce | Merger | None, merges: Merges | None = None
) -> Callable[[bytes], Accumulator] | None:
    """How a fold of these rules begins, with its first message; None: there is nothing to combine.

    `merges`: what the registered merger of these rules has answered to others.
    """
    if merge is None:
        return None
    if isinstance(merge, Merger):
        asked = merge if merges is None else merges
        return lambda payload: MergerFold(asked, payload)
    return lambda payload: ReducerFold(merge.begin(payload))


@dataclass(frozen=True, slots=True)
class ReducerFold:
    """Messages combined field by field."""

    merged: Merged

    def add(self, payload: bytes) -> ReducerFold:
        """Reducers always conflate."""
        return ReducerFold(self.merged.add(payload))

    def join(self, later: Accumulator) -> ReducerFold:
        """Reducers are associative."""
        assert isinstance(later, ReducerFold)
        return ReducerFold(self.merged.join(later.merged))

    def payload(self) -> bytes:
        """The combined message."""
        return self.merged.payload()

    def unreported(self) -> ReducerFold:
        """All: its messages are counted there, and a sum is that of what is counted."""
        return self


@dataclass(frozen=True, slots=True)
class MergerFold:
    """Messages combined by a registered merger."""

    merger: Merger | Merges
    text: bytes

    def add(self, payload: bytes) -> MergerFold | None:
        """What the merger says of the message so far and one more; itself where that is kept."""
        match self.merger.answer(self.text, payload):
            case Verdict.KEEP_CURRENT:
                return self
            case Verdict.NO_CONFLATION:
                return None
            case Verdict.KEEP_NEW:
                return MergerFold(self.merger, payload)
            case text:
                return MergerFold(self.merger, text)

    def join(self, later: Accumulator) -> MergerFold | None:
        """What the merger says of two combined messages."""
        assert isinstance(later, MergerFold)
        return self.add(later.text)

    def payload(self) -> bytes:
        """The combined message."""
        return self.text

    def unreported(self) -> None:
        """Nothing: a merger is asked about messages of one interval, and might decline."""


class CombinedRow(Row, frozen=True, gc=False, kw_only=True):
    """A row of a lane that combines messages, or keeps some apart (`merge`, `match`).

    It keeps what a later row of its key needs to join it while nobody has been sent either:
    `rules`, the newest message as `published`, and the fold. Its payload alone does not do: a
    count of counts is no count.
    """

    rules: LaneId
    published: bytes = b""
    fold: Accumulator | None = None

    def meets(self, later: CombinedRow) -> bool:
        """Whether a later row may join this one."""
        mine, other = self.rules, later.rules
        if (mine.merge, mine.match) != (other.merge, other.match):
            return False
        if isinstance(mine.match, Matcher):
            return mine.match.matches(self.published, later.published)
        if mine.match is None:
            return True
        match_of = conflation_key(mine.match)
        return match_of(self.published) == match_of(later.published)

    def then(self, later: CombinedRow) -> CombinedRow | None:
        """Both as one, this one the older; None if a merger declines."""
        count = receipt_of(self).then(receipt_of(later))
        if self.fold is None or later.fold is None:
            return combined_row(later, count, later.rules, later.published, None)
        fold = self.fold.join(later.fold)
        if fold is None:
            return None
        return combined_row(later, count, later.rules, later.published, fold)


class CombinedRemoval(Tombstone, frozen=True, gc=False, kw_only=True):
    """A removal of such a lane, with the fold of the messages that it took away."""

    rules: LaneId
    fold: Accumulator | None = None


def combines(rules: LaneId) -> bool:
    """Whether rows of these rules are `CombinedRow`s."""
    return rules.merge is not None or rules.match is not None


def combined_row(
    frame: Frame, count: Receipt, rules: LaneId, published: bytes, fold: Accumulator | None
) -> CombinedRow:
    """Make the row of a fold, or without one of a value that is shown already."""
    payload = frame.payload
    if fold is not None:
        payload = fold.payload() if rules.select is None else rules.select.apply(fold.payload())
    return CombinedRow(
        frame.offset,
        payload,
        frame.key,
        frame.timestamp_ms,
        first=count.first,
        first_ms=count.first_ms,
        messages=count.messages,
        rules=rules,
        published=published,
        fold=fold,
    )


def lifted(frame: Frame, rules: LaneId) -> Frame:
    """A single message as these rules would hold it, so that it can be combined with others."""
    is_single = not frame.removed and receipt_of(frame).messages == 1
    if not is_single or frame.exempt or isinstance(frame, CombinedRow):
        return frame
    start = fold_of(rules.merge)
    fold = None if start is None else start(frame.payload)
    return combined_row(frame, receipt_of(frame), rules, frame.payload, fold)


class Unreported(msgspec.Struct, frozen=True, gc=False):
    """How many messages, the first of them, and what reducers made of them (`merge`)."""

    count: Receipt
    merge: Reduce | Merger | None = None
    fold: Accumulator | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def then(self, later: Unreported) -> Unreported:
        """Both, this one the older; what other rules made of messages is only counted."""
        fold = later.fold if self.fold is None else self.fold
        if self.fold is not None and later.fold is not None:
            fold = self.fold.join(later.fold) if self.merge == later.merge else later.fold
        merge = self.merge if fold is self.fold else later.merge
        return Unreported(self.count.then(later.count), merge, fold)

    def fits(self, row: Frame) -> bool:
        """Whether a row that stands for these messages too can say what they said."""
        if not receipt_of(row).messages:
            return row.removed  # a record that another filter brought in stands for no message
        if not isinstance(row, CombinedRow):
            return True
        return self.merge == row.rules.merge and (self.fold is not None or row.fold is None)

    def on(self, row: Frame) -> Frame:
        """The row that stands for these messages too; combined with them where reducers can."""
        count = self.count.then(receipt_of(row))
        if not isinstance(row, CombinedRow | CombinedRemoval) or self.merge != row.rules.merge:
            return count.on(row, row.patch if isinstance(row, Row) else None)
        fold = row.fold
        if self.fold is not None:
            fold = self.fold if fold is None else self.fold.join(fold)
        if isinstance(row, CombinedRemoval):
            return msgspec.structs.replace(count.on(row), fold=fold)
        return combined_row(row, count, row.rules, row.published, fold)


def unreported_of(row: Frame) -> Unreported | None:
    """What a row stands for that is not told after all; None for a removal that counts nothing."""
    count = receipt_of(row)
    if not count.messages:
        return None
    if isinstance(row, CombinedRow | CombinedRemoval):
        fold = None if row.fold is None else row.fold.unreported()
        return Unreported(count, row.rules.merge, fold)
    return Unreported(count)


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
