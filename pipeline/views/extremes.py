"""Parts of `MIN` and `MAX`: the best number and the best string of some records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from keys.monoids import MONOIDS, Monoid, Reducer, join
from keys.number import comparable, is_number
from keys.value import NULL, string
from pipeline.views.members import Members
from pipeline.views.texts import are_decimals


@dataclass(frozen=True, slots=True)
class Extreme:
    """The best number and the best string, as the reducers `min` and `max` take them."""

    reducer: Reducer

    def of(self, cells: pa.Array, members: Members) -> list[Any]:
        """Of each the text, and where it was published; of equal ones the first."""
        if are_decimals(cells):
            return self._of_decimals(cells, members)
        pick = min if self.reducer is Reducer.MIN else max
        found: list[list[int]] = []
        starts = members.starts.tolist()
        for start, texts in zip(starts, members.parts(cells.to_pylist()), strict=True):
            there = [(at, text) for at, text in enumerate(texts, start) if text is not None]
            kinds = (
                [(comparable(text), at) for at, text in there if is_number(text)],
                [(string(text) or "", at) for at, text in there if text[:1] == b'"'],
            )
            found.append([pick(kind, key=_value)[1] for kind in kinds if kind])
        return _picked(found, cells, members)

    def _of_decimals(self, cells: pa.Array, members: Members) -> list[Any]:
        """The same at once: doubles are as far apart as short decimals."""
        sign = 1.0 if self.reducer is Reducer.MIN else -1.0
        numbers = cells.cast(pa.string()).cast(pa.float64()).fill_null(sign * np.inf)
        signed = sign * np.asarray(numbers)
        best = np.minimum.reduceat(signed, members.starts)
        is_best = (signed == np.repeat(best, members.sizes)) & np.asarray(cells.is_valid())
        first = np.where(is_best, np.arange(len(cells)), len(cells))
        rows = np.minimum.reduceat(first, members.starts).tolist()
        return _picked([[row] if row < len(cells) else [] for row in rows], cells, members)

    def shown(self, parts: Sequence[Any]) -> bytes:
        """The best of all in order of publication."""
        monoid: Monoid = MONOIDS[self.reducer]
        candidates = sorted((each for part in parts for each in part), key=published)
        states = (monoid.lift(text) for _, text in candidates)
        best = reduce(lambda one, later: join(monoid, one, later), states, None)
        return NULL if best is None else monoid.show(best) or NULL


def _picked(found: list[list[int]], cells: pa.Array, members: Members) -> list[Any]:
    """Some rows of each group: their texts, and where they were published."""
    rows = np.array([at for group in found for at in group], np.int64)
    places, texts = iter(members.places(rows)), iter(cells.take(pa.array(rows)).to_pylist())
    return [[[next(places), next(texts)] for _ in group] for group in found]


def published(part: Any) -> tuple[Any, ...]:
    """Where the text of a part was published."""
    return tuple(part[0])


def _value(pair: tuple[Any, int]) -> Any:
    return pair[0]
