"""Partial aggregates: each task aggregates its own records, and the partials are then combined.

A record is in one task; the records of a group are in several. A partial loses nothing: in
whichever order partials are combined, the result is that of `tidegate.keys.projection` over all
records in order of publication. Partials are lists, numbers and texts, because they are saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.jsontext import (
    NULL,
    Exact,
    canonical_value,
    comparable,
    exact,
    is_number,
    string,
)
from tidegate.keys.projection import DEVIATIONS, Aggregate, Column, Moments, calculated
from tidegate.keys.reducers import MONOIDS, Monoid, Reducer, join
from tidegate.pipeline import intervals
from tidegate.pipeline.views.cells import DIGITS_MAX, WORD, GroupRecords, are_decimals

# --- exact sums of decimals by group: over columns where these are exact

WHOLE_MAX = 2**63 - 1  # numpy's sums wrap around silently beyond it


def moments(texts: pa.Array, starts: intervals.Column, *, squared: bool) -> list[Moments]:
    """Return the moments of each group's decimals; group i begins at `starts[i]`."""
    found = _scaled(texts)
    if found is not None:
        scaled, places = found
        highest = int(np.abs(scaled).max(initial=0)) ** (2 if squared else 1)
        if highest * len(scaled) <= WHOLE_MAX:
            return _of_integers(scaled, 10**places, starts, squared=squared)
    numbers: list[Exact] = [_exact_bytes(text) for text in texts.to_pylist()]
    bounds = [*starts.tolist(), len(numbers)]
    return [Moments.of(numbers[low:high], squared=squared) for low, high in pairwise(bounds)]


def _scaled(texts: pa.Array) -> tuple[intervals.Column, int] | None:
    """Return decimals as integers, and how many of their digits are after the point.

    None where one has an exponent, or more digits than a double is sure of.
    """
    if not are_decimals(texts):
        return None
    lengths, words = pc.binary_length(texts), texts.cast(pa.string())
    points = np.asarray(pc.find_substring(words, "."))
    decimals = np.where(points < 0, 0, np.asarray(lengths) - points - 1)
    places = int(decimals.max(initial=0))
    # Doubles hold integers of 15 digits exactly, so scaling and rounding lose nothing.
    scaled = np.rint(np.asarray(words.cast(pa.float64())) * 10.0**places)
    # One short decimal may need many places that a long one lacks room for.
    if np.abs(scaled).max(initial=0) >= 10.0**DIGITS_MAX:
        return None
    return scaled.astype(np.int64), places


def _of_integers(
    scaled: intervals.Column, unit: int, starts: intervals.Column, *, squared: bool
) -> list[Moments]:
    counts = np.diff(starts, append=len(scaled)).tolist()
    totals = np.add.reduceat(scaled, starts).tolist()
    squares = np.add.reduceat(scaled * scaled, starts).tolist() if squared else [0] * len(totals)
    if unit == 1:
        return list(map(Moments, counts, totals, squares))
    return [
        Moments(count, Fraction(total, unit), Fraction(square, unit * unit))
        for count, total, square in zip(counts, totals, squares, strict=True)
    ]


def _exact_bytes(text: bytes) -> Exact:
    found = exact(text)
    assert found is not None, "a decimal that a double shows"
    return found


# --- partials of MIN and MAX: the best number and the best string of some records


@dataclass(frozen=True, slots=True)
class Extreme:
    """The best number and the best string, as the reducers `min` and `max` take them."""

    reducer: Reducer

    def of(self, cells: pa.Array, records: GroupRecords) -> list[Any]:
        """Return for each group the text and where it was published; of equal ones the first."""
        if are_decimals(cells):
            return self._of_decimals(cells, records)
        pick = min if self.reducer is Reducer.MIN else max
        found: list[list[int]] = []
        starts = records.starts.tolist()
        for start, texts in zip(starts, records.by_group(cells.to_pylist()), strict=True):
            there = [(at, text) for at, text in enumerate(texts, start) if text is not None]
            kinds = (
                [(comparable(text), at) for at, text in there if is_number(text)],
                [(string(text) or "", at) for at, text in there if text[:1] == b'"'],
            )
            found.append([pick(kind, key=_value)[1] for kind in kinds if kind])
        return _picked(found, cells, records)

    def _of_decimals(self, cells: pa.Array, records: GroupRecords) -> list[Any]:
        """Compare all at once: short decimals differ exactly if their doubles do."""
        sign = 1.0 if self.reducer is Reducer.MIN else -1.0
        numbers = cells.cast(pa.string()).cast(pa.float64()).fill_null(sign * np.inf)
        signed = sign * np.asarray(numbers)
        best = np.minimum.reduceat(signed, records.starts)
        is_best = (signed == np.repeat(best, records.sizes)) & np.asarray(cells.is_valid())
        first = np.where(is_best, np.arange(len(cells)), len(cells))
        rows = np.minimum.reduceat(first, records.starts).tolist()
        return _picked([[row] if row < len(cells) else [] for row in rows], cells, records)

    def shown(self, partials: Sequence[Partial]) -> bytes:
        """Return the best of all in order of publication."""
        monoid: Monoid = MONOIDS[self.reducer]
        candidates = sorted((pair for partial in partials for pair in partial), key=published)
        states = (monoid.lift(text) for _, text in candidates)
        best = reduce(lambda one, later: join(monoid, one, later), states, None)
        return NULL if best is None else monoid.show(best) or NULL


def _picked(found: list[list[int]], cells: pa.Array, records: GroupRecords) -> list[Any]:
    """Return texts and places of publication of some rows of each group."""
    rows = np.array([at for group in found for at in group], np.int64)
    places, texts = iter(records.places(rows)), iter(cells.take(pa.array(rows)).to_pylist())
    return [[[next(places), next(texts)] for _ in group] for group in found]


def published(pair: Any) -> tuple[Any, ...]:
    """Return the place of publication in a pair of place and text."""
    return tuple(pair[0])


def _value(pair: tuple[Any, int]) -> Any:
    return pair[0]


Partial = Any
"""One aggregate over a group's records in one task; its form depends on the aggregate."""


class PartialAggregate(Protocol):
    """The aggregate of a column: makes partials, and combines and shows them."""

    def of(self, cells: pa.Array, records: GroupRecords) -> list[Partial]:
        """Return one partial for each group; `cells` are in the order of `records`."""

    def shown(self, partials: Sequence[Partial]) -> bytes | None:
        """Return the JSON text of one group's partials combined; None where nothing is shown."""


def partial_aggregate(column: Column) -> PartialAggregate:
    """Return the aggregate of a column of a projection."""
    match column.aggregate:
        case None:
            return NEWEST
        case Aggregate.COUNT:
            return Counts()
        case Aggregate.COUNT_DISTINCT:
            return Distinct()
        case Aggregate.FIRST:
            return Edge(last=False)
        case Aggregate.LAST:
            return Edge(last=True)
        case Aggregate.MIN:
            return Extreme(Reducer.MIN)
        case Aggregate.MAX:
            return Extreme(Reducer.MAX)
    return Numeric(column.aggregate)


class Counts:
    """How many values there are."""

    def of(self, cells: pa.Array, records: GroupRecords) -> list[Partial]:
        """Return a number for each group."""
        there = np.asarray(cells.is_valid()).astype(np.int64)
        return list(np.add.reduceat(there, records.starts).tolist())

    def shown(self, partials: Sequence[Partial]) -> bytes:
        """Return the sum."""
        return b"%d" % sum(partials)


class Distinct:
    """The values that differ, each in its one spelling."""

    def of(self, cells: pa.Array, records: GroupRecords) -> list[Partial]:
        """Return a list of spellings for each group."""
        return [
            # Sorted, so that a repeated batch writes the same bytes.
            sorted({canonical_value(text) for text in texts if text is not None})
            for texts in records.by_group(cells.to_pylist())
        ]

    def shown(self, partials: Sequence[Partial]) -> bytes:
        """Return how many differ in all partials together."""
        return b"%d" % len(set().union(*partials))


@dataclass(frozen=True, slots=True)
class Edge:
    """The first or the last value; with `absent` that of the last record, even if it is missing."""

    last: bool
    absent: bool = False

    def of(self, cells: pa.Array, records: GroupRecords) -> list[Partial]:
        """Return the value and where it was published, or None, for each group."""
        rows = np.arange(len(cells))
        if self.absent:
            found = records.ends - 1
        elif self.last:
            there = np.where(np.asarray(cells.is_valid()), rows, -1)
            found = np.maximum.reduceat(there, records.starts)
        else:
            there = np.where(np.asarray(cells.is_valid()), rows, len(cells))
            found = np.minimum.reduceat(there, records.starts)
        is_found = (found >= 0) & (found < len(cells))
        places = iter(records.places(found[is_found]))
        texts = iter(cells.take(pa.array(found[is_found])).to_pylist())
        return [[next(places), next(texts)] if each else None for each in is_found.tolist()]

    def shown(self, partials: Sequence[Partial]) -> bytes | None:
        """Return the text that was published first or last."""
        found = sorted((pair for pair in partials if pair is not None), key=published)
        if not found:
            return None if self.absent else NULL
        text: bytes | None = found[-1 if self.last else 0][1]
        return text


NEWEST = Edge(last=True, absent=True)


@dataclass(frozen=True, slots=True)
class Numeric:
    """Calculated aggregates: moments as texts of fractions; None if a value was not a number."""

    aggregate: Aggregate

    def of(self, cells: pa.Array, records: GroupRecords) -> list[Partial]:
        """Count, sum, sum of squares; None where there is a word."""
        words = np.asarray(pc.fill_null(pc.equal(cells, pa.scalar(WORD, pa.binary())), False))
        has_word = np.logical_or.reduceat(words, records.starts)
        there = np.asarray(cells.is_valid()) & ~words
        counts = np.add.reduceat(there.astype(np.int64), records.starts)
        begins = np.cumsum(counts) - counts
        known = iter(
            moments(
                cells.filter(pa.array(there)),
                begins[counts > 0],
                squared=self.aggregate in DEVIATIONS,
            )
            if counts.any()
            else ()
        )
        found = [next(known) if count else Moments(0, 0, 0) for count in counts.tolist()]
        pairs = zip(found, has_word.tolist(), strict=True)
        return [None if word else _written(each) for each, word in pairs]

    def shown(self, partials: Sequence[Partial]) -> bytes:
        """Return the aggregate of all partials; null if a value was not a number."""
        if any(partial is None for partial in partials):
            return NULL
        return calculated(self.aggregate, sum(map(_read, partials), Moments(0, 0, 0)))


def _written(found: Moments) -> list[Any]:
    return [found.count, str(found.total), str(found.squares)]


def _read(partial: Sequence[Any]) -> Moments:
    count, total, squares = partial
    return Moments(count, _exact(total), _exact(squares))


def _exact(text: str) -> Exact:
    # Most totals are whole numbers, and int is much faster than Fraction.
    return Fraction(text) if "/" in text else int(text)
