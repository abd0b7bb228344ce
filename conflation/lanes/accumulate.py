"""Messages of one key combined by reducers or by a registered merger, and rows of them.

Everything here is immutable and joins associatively in publication order. That covers late joins
and slow subscribers: parts that a member has missed are joined like parts that are held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

import msgspec

from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.subscription import LaneId
from tidegate.keys.merging import Matcher, Merger, Verdict
from tidegate.keys.reducers import Merged, Reduce, Reducer
from tidegate.keys.spec import conflation_key

MERGES_BYTES_MAX = 32 << 20
"""The bound on cached answers of one lane's merger; the oldest ones are dropped."""

_ENTRY_BYTES = 200  # of a dict entry with its key, roughly


def is_always_joined(merge: Reduce | Merger) -> bool:
    """Return True if messages of a key always become one row: by reducers that keep no lists."""
    return isinstance(merge, Reduce) and not any(
        column.reducer in (Reducer.APPEND, Reducer.UNION) for column in merge.columns
    )


class Merges:
    """A cache of a registered merger's answers, by the two messages.

    As in Diffusion, "merges of identical message pairs are not repeated for different clients".
    Queues that do not begin with the same message share no pair. Failures are answers, too, so each
    is reported once.
    """

    def __init__(self, merger: Merger) -> None:
        self.merger = merger
        self._bytes = 0
        self._answers: dict[tuple[bytes, bytes], bytes | Verdict] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def __eq__(self, other: object) -> bool:
        """Return True for the answers of one merger, whichever it was asked for so far."""
        return isinstance(other, Merges) and self.merger == other.merger

    def __hash__(self) -> int:
        return hash(self.merger)

    @classmethod
    def of(cls, merge: Reduce | Merger | None) -> Merges | None:
        """Return a cache for a registered merger; None for reducers, which are as fast."""
        return cls(merge) if isinstance(merge, Merger) else None

    def __deepcopy__(self, memo: object) -> Merges:
        return self  # answers depend only on the messages

    def answer(self, current: bytes, new: bytes) -> bytes | Verdict:
        """Return the merger's answer about two messages, the older one first."""
        known = self._answers.get((current, new))
        if known is None:
            known = self._answers[current, new] = self.merger.answer(current, new)
            self._bytes += _size(new, known)
            # The oldest pairs first: queues are conflated from their old end.
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
    # The older message of a pair is an earlier answer, and is counted there.
    return _ENTRY_BYTES + len(new) + (0 if isinstance(answer, Verdict) else len(answer))


LISTS_BYTES_MAX = 1 << 20
"""The bound on what `append` and `union` collect in one row; a row above it is sent."""


class Accumulator(Protocol):
    """Messages of one key combined in publication order; immutable."""

    def join(self, later: Accumulator) -> Accumulator | None:
        """Join later messages combined by the same rules; None: both have to be sent."""

    def payload(self) -> bytes:
        """Return the combined message."""

    @property
    def lists_bytes(self) -> int:
        """The bytes of lists, which alone grow with the number of messages."""

    def unreported(self) -> Accumulator | None:
        """Return what the key's next row includes if no row of these messages is sent."""


def outgrow(earlier: Accumulator | None, later: Accumulator | None) -> bool:
    """Return True if one row of both would have lists without a bound."""
    if earlier is None or later is None:
        return False
    more = later.lists_bytes  # most reducers have no lists
    return more > 0 and earlier.lists_bytes + more > LISTS_BYTES_MAX


def accumulator_of(
    merge: Reduce | Merger | None, merges: Merges | None = None
) -> Callable[[bytes], Accumulator] | None:
    """Return what makes an accumulator of a payload by these rules; None if nothing is combined.

    `merges`: a cache of the registered merger's answers.
    """
    if merge is None:
        return None
    if isinstance(merge, Merger):
        asked = merge if merges is None else merges
        return lambda payload: MergerAccumulator(asked, payload)
    return lambda payload: ReducerAccumulator(merge.begin(payload))


class ReducerAccumulator(msgspec.Struct, frozen=True, gc=False):
    """Messages combined field by field."""

    merged: Merged

    def join(self, later: Accumulator) -> ReducerAccumulator:
        """Join later messages; reducers always combine them."""
        assert isinstance(later, ReducerAccumulator)
        return ReducerAccumulator(self.merged.join(later.merged))

    def payload(self) -> bytes:
        """Return the combined message."""
        return self.merged.payload()

    @property
    def lists_bytes(self) -> int:
        """The bytes that `append` and `union` have collected."""
        lists = (it for it in self.merged.states if isinstance(it, tuple | dict))
        return sum(
            len(part) for it in lists for part in (it if isinstance(it, tuple) else it.values())
        )

    def unreported(self) -> ReducerAccumulator:
        """Return all of it: a sum has to cover every message that the row counts."""
        return self


class MergerAccumulator(msgspec.Struct, frozen=True, gc=False):
    """Messages combined by a registered merger."""

    merger: Merger | Merges
    text: bytes

    def join(self, later: Accumulator) -> MergerAccumulator | None:
        """Ask the merger about two combined messages; return `self` if it keeps the earlier one."""
        assert isinstance(later, MergerAccumulator)
        match self.merger.answer(self.text, later.text):
            case Verdict.KEEP_CURRENT:
                return self
            case Verdict.NO_CONFLATION:
                return None
            case Verdict.KEEP_NEW:
                return MergerAccumulator(self.merger, later.text)
            case text:
                return MergerAccumulator(self.merger, text)

    def payload(self) -> bytes:
        """Return the combined message."""
        return self.text

    @property
    def lists_bytes(self) -> int:
        """0: a registered merger has to bound what it makes."""
        return 0

    def unreported(self) -> None:
        """Return nothing: a merger is asked about messages of one interval, and might decline."""


class CombinedRow(Row, frozen=True, gc=False, kw_only=True):
    """A row of a lane that combines messages, or keeps some apart (`merge`, `match`).

    It has what is needed to join a later row of its key while neither has been sent: the newest
    message as `published`, the accumulator, and `rules`, the lane's id, whose options say how rows
    combine. The payload is not enough: a count of counts is not a count of messages.
    """

    rules: LaneId
    published: bytes = b""
    accumulator: Accumulator | None = None

    def meets(self, later: CombinedRow) -> bool:
        """Return True if a later row may join this one."""
        if outgrow(self.accumulator, later.accumulator):
            return False
        mine, other = self.rules, later.rules
        # Rules differ after a change of options, such as from a sum to a maximum.
        if (mine.merge, mine.match) != (other.merge, other.match):
            return False
        if isinstance(mine.match, Matcher):
            return mine.match.matches(self.published, later.published)
        if mine.match is None:
            return True
        match_of = conflation_key(mine.match)
        return match_of(self.published) == match_of(later.published)

    def then(self, later: CombinedRow) -> CombinedRow | None:
        """Join a later row; None if a merger declines."""
        count = receipt_of(self).then(receipt_of(later))
        if self.accumulator is None or later.accumulator is None:
            # With `match` alone nothing is combined: the later message replaces the earlier one.
            return combined_row(later, count, later.rules, later.published, None)
        accumulator = self.accumulator.join(later.accumulator)
        if accumulator is None:
            return None
        return combined_row(later, count, later.rules, later.published, accumulator)


class CombinedRemoval(Tombstone, frozen=True, gc=False, kw_only=True):
    """A removal of such a lane, with the accumulator of the messages that it took away."""

    rules: LaneId
    accumulator: Accumulator | None = None


def combines(rules: LaneId) -> bool:
    """Return True if rows of these rules are `CombinedRow`s."""
    return rules.merge is not None or rules.match is not None


def combined_row(
    frame: Frame, count: Receipt, rules: LaneId, published: bytes, accumulator: Accumulator | None
) -> CombinedRow:
    """Make the row of an accumulator; without one, of a payload whose fields are selected."""
    payload = frame.payload if accumulator is None else accumulator.payload()
    # Fields are selected from the combined message: reducers may read those that are dropped.
    if accumulator is not None and rules.select is not None:
        payload = rules.select.apply(payload)
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
        accumulator=accumulator,
    )


def lifted(frame: Frame, rules: LaneId) -> Frame:
    """Return the row of a single message in the form of these rules, so that it can be combined."""
    is_single = not frame.removed and receipt_of(frame).messages == 1
    # A row of several messages is no message, and neither is what other rules made of one.
    if not is_single or frame.exempt or isinstance(frame, CombinedRow):
        return frame
    start = accumulator_of(rules.merge)
    accumulator = None if start is None else start(frame.payload)
    return combined_row(frame, receipt_of(frame), rules, frame.payload, accumulator)


class Unreported(msgspec.Struct, frozen=True, gc=False):
    """Messages of a key that no row stands for yet: they count with the key's next row.

    `merge` are the rules by which the accumulator was made.
    """

    count: Receipt
    merge: Reduce | Merger | None = None
    accumulator: Accumulator | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def then(self, later: Unreported) -> Unreported:
        """Join later messages; accumulators of different rules cannot be joined."""
        # With different rules the later accumulator stays, as its rules are those of the next rows.
        # The count covers both.
        accumulator = later.accumulator if self.accumulator is None else self.accumulator
        if self.accumulator is not None and later.accumulator is not None:
            accumulator = (
                self.accumulator.join(later.accumulator)
                if self.merge == later.merge
                else later.accumulator
            )
        merge = self.merge if accumulator is self.accumulator else later.merge
        return Unreported(self.count.then(later.count), merge, accumulator)

    def fits(self, row: Frame) -> bool:
        """Return True if a row can stand for these messages, too, with their combined values."""
        if not receipt_of(row).messages:
            # A removal can. A row that a change of filter brought in stands for no message.
            return row.removed
        if not isinstance(row, CombinedRow):
            return True
        return self.merge == row.rules.merge and (
            self.accumulator is not None or row.accumulator is None
        )

    def on(self, row: Frame) -> Frame:
        """Return the row that stands for these messages, too, combined by the same rules."""
        count = self.count.then(receipt_of(row))
        # With other rules, or none, the row keeps its value and only counts the messages.
        if not isinstance(row, CombinedRow | CombinedRemoval) or self.merge != row.rules.merge:
            return count.on(row, row.patch if isinstance(row, Row) else None)
        accumulator = row.accumulator
        if self.accumulator is not None:
            accumulator = (
                self.accumulator if accumulator is None else self.accumulator.join(accumulator)
            )
        if isinstance(row, CombinedRemoval):
            return msgspec.structs.replace(count.on(row), accumulator=accumulator)
        return combined_row(row, count, row.rules, row.published, accumulator)


def unreported_of(row: Frame) -> Unreported | None:
    """Return what a row that is not sent stands for; None for a removal that counts nothing."""
    count = receipt_of(row)
    if not count.messages:
        return None
    if isinstance(row, CombinedRow | CombinedRemoval):
        accumulator = None if row.accumulator is None else row.accumulator.unreported()
        return Unreported(count, row.rules.merge, accumulator)
    return Unreported(count)
