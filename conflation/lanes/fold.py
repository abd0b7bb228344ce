"""Folds: held messages combined by reducers or a registered merger (structural conflation)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from conflation.merging import Merger, Verdict
from keys.errors import JsonInvalid
from keys.jsontext import decoded
from keys.reducers import Merged, Reduce

UNREADABLE = object()
"""A message with a number that has no value here: it is conflated with nothing."""


class Fold(Protocol):
    """Messages of one key combined in publication order; immutable."""

    def add(self, payload: bytes) -> Fold | None:
        """With one more message; None: no conflation, both are to be sent."""

    def join(self, later: Fold) -> Fold | None:
        """With what was combined of later messages."""

    def payload(self) -> bytes:
        """The combined message."""


def value_of(payload: bytes) -> Any:
    """A message as registered functions see it; `UNREADABLE` where it has no value."""
    try:
        return decoded(payload)
    except JsonInvalid:
        return UNREADABLE


def fold_of(merge: Reduce | Merger) -> Callable[[bytes], Fold]:
    """How a fold of these rules begins, with its first message."""
    if isinstance(merge, Merger):
        return lambda payload: MergerFold(merge, value_of(payload), payload)
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


@dataclass(frozen=True, slots=True)
class MergerFold:
    """Messages combined by a registered merger; `text` is the value as it is sent."""

    merger: Merger
    value: Any
    text: bytes

    def add(self, payload: bytes) -> MergerFold | None:
        """What the merger says of the value so far and one more message."""
        return self._with(value_of(payload), payload)

    def join(self, later: Fold) -> MergerFold | None:
        """What the merger says of two combined values."""
        assert isinstance(later, MergerFold)
        return self._with(later.value, later.text)

    def payload(self) -> bytes:
        """The combined message."""
        return self.text

    def _with(self, value: Any, text: bytes) -> MergerFold | None:
        if self.value is UNREADABLE or value is UNREADABLE:
            return None
        answer = self.merger.function(self.value, value)
        if answer is Verdict.NO_CONFLATION:
            return None
        if answer is Verdict.KEEP_CURRENT:
            return self
        if answer is Verdict.KEEP_NEW:
            return MergerFold(self.merger, value, text)
        return MergerFold(self.merger, answer, msgspec.json.encode(answer))
