"""Folds: held messages combined by reducers or a registered merger (structural conflation)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from keys.merging import Merger
from keys.reducers import Merged, Reduce


class Fold(Protocol):
    """Messages of one key combined in publication order; immutable."""

    def add(self, payload: bytes) -> Fold | None:
        """With one more message; None: no conflation, both are to be sent."""

    def join(self, later: Fold) -> Fold | None:
        """With what was combined of later messages."""

    def payload(self) -> bytes:
        """The combined message."""

    def untold(self) -> Fold | None:
        """What of it goes into the key's next row, if nobody is told of it."""


def fold_of(merge: Reduce | Merger) -> Callable[[bytes], Fold]:
    """How a fold of these rules begins, with its first message."""
    if isinstance(merge, Merger):
        return lambda payload: MergerFold(merge, payload)
    return lambda payload: ReducerFold(merge.begin(payload))


@dataclass(frozen=True, slots=True)
class ReducerFold:
    """Messages combined field by field."""

    merged: Merged

    def add(self, payload: bytes) -> ReducerFold:
        """Reducers always conflate."""
        return ReducerFold(self.merged.add(payload))

    def join(self, later: Fold) -> ReducerFold:
        """Reducers are associative."""
        assert isinstance(later, ReducerFold)
        return ReducerFold(self.merged.join(later.merged))

    def payload(self) -> bytes:
        """The combined message."""
        return self.merged.payload()

    def untold(self) -> ReducerFold:
        """All: its messages are counted there, and a sum is that of what is counted."""
        return self


@dataclass(frozen=True, slots=True)
class MergerFold:
    """Messages combined by a registered merger."""

    merger: Merger
    text: bytes

    def add(self, payload: bytes) -> MergerFold | None:
        """What the merger says of the message so far and one more."""
        merged = self.merger.merged(self.text, payload)
        return None if merged is None else MergerFold(self.merger, merged)

    def join(self, later: Fold) -> MergerFold | None:
        """What the merger says of two combined messages."""
        assert isinstance(later, MergerFold)
        return self.add(later.text)

    def payload(self) -> bytes:
        """The combined message."""
        return self.text

    def untold(self) -> None:
        """Nothing: a merger is asked about messages of one interval, and might decline."""
