"""Folds: held messages combined by reducers or a registered merger (structural conflation)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.merges import Merges
from tidegate.keys.merging import Matcher, Merger, Verdict
from tidegate.keys.reducers import Merged, Reduce
from tidegate.keys.spec import conflation_key


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
