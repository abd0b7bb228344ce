"""Messages of a key that no row stands for yet: they count with the key's next row."""

from __future__ import annotations

from typing import Self

import msgspec

from tidegate.conflation.frame import Frame, Receipt, Row, receipt_of
from tidegate.conflation.lanes.accumulate import (
    Accumulator,
    CombinedRemoval,
    CombinedRow,
    combined_row,
)
from tidegate.keys.merging import Merger
from tidegate.keys.reducers import Reduce


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
