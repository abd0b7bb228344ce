"""Aggregates of AMPS's projections: what the values of a group's records come to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from keys.filter.numbers import Scalar, number
from keys.monoids import MONOIDS, Reducer, join
from keys.number import Exact, exact, spelled
from keys.value import NULL, canonical_value

ROOT_BITS = 160


class Aggregate(StrEnum):
    """The names of aggregates; `STDDEV` is another name of STDDEV_SAMP."""

    COUNT = "COUNT"
    COUNT_DISTINCT = "COUNT_DISTINCT"
    SUM = "SUM"
    AVG = "AVG"
    MIN = "MIN"
    MAX = "MAX"
    FIRST = "FIRST"
    LAST = "LAST"
    STDDEV_SAMP = "STDDEV_SAMP"
    STDDEV_POP = "STDDEV_POP"


SYNONYMS = {"STDDEV": Aggregate.STDDEV_SAMP}
NAMES = frozenset([*Aggregate, *SYNONYMS])
DEVIATIONS = frozenset({Aggregate.STDDEV_SAMP, Aggregate.STDDEV_POP})


@dataclass(frozen=True, slots=True)
class Cell:
    """A record's value that is not NULL, and the JSON text to show for it."""

    value: Scalar
    text: bytes


@dataclass(frozen=True, slots=True)
class Moments:
    """Of numbers what is calculated from: how many, their sum, and that of their squares.

    Exact, so that those of two lots of numbers are added in any order.
    """

    count: int
    total: Exact
    squares: Exact

    @classmethod
    def of(cls, numbers: Sequence[Exact], *, squared: bool) -> Moments:
        """Of some numbers; squares are 0 unless they are asked for."""
        squares = sum(each * each for each in numbers) if squared else 0
        return cls(len(numbers), sum(numbers), squares)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )


def aggregated(aggregate: Aggregate, cells: Sequence[Cell]) -> bytes:
    """JSON text of an aggregate over a group's values, in publication order.

    null where there is nothing to say: no value, a value that is no number among those of a
    numeric aggregate, fewer than two for STDDEV_SAMP.
    """
    match aggregate:
        case Aggregate.COUNT:
            return str(len(cells)).encode()
        case Aggregate.COUNT_DISTINCT:
            return str(len({canonical_value(cell.text) for cell in cells})).encode()
        case Aggregate.FIRST:
            return cells[0].text if cells else NULL
        case Aggregate.LAST:
            return cells[-1].text if cells else NULL
        case Aggregate.MIN:
            return _extreme(Reducer.MIN, cells)
        case Aggregate.MAX:
            return _extreme(Reducer.MAX, cells)
    numbers = [_number(cell.value) for cell in cells]
    known = [each for each in numbers if each is not None]
    if len(known) < len(numbers):
        return NULL
    return calculated(aggregate, Moments.of(known, squared=aggregate in DEVIATIONS))


def calculated(aggregate: Aggregate, moments: Moments) -> bytes:
    """JSON text of a numeric aggregate; null of nothing, or of too little."""
    result = _NUMERIC[aggregate](moments) if moments.count else None
    return NULL if result is None else spelled(result)


def _extreme(reducer: Reducer, cells: Sequence[Cell]) -> bytes:
    monoid = MONOIDS[reducer]
    best = None
    for cell in cells:
        best = join(monoid, best, monoid.lift(cell.text))
    return NULL if best is None else monoid.show(best) or NULL


def _number(value: Scalar) -> Exact | None:
    """A value to calculate with, as filters take numbers; a double is the decimal it shows."""
    found = number(value)
    if isinstance(found, int):
        return found
    return exact(repr(found).encode()) if math.isfinite(found) else None


def _mean(moments: Moments) -> Exact:
    return Fraction(moments.total) / moments.count


def _sample_deviation(moments: Moments) -> Exact | None:
    return _deviation(moments, moments.count - 1) if moments.count > 1 else None


def _population_deviation(moments: Moments) -> Exact:
    return _deviation(moments, moments.count)


def _deviation(moments: Moments, divisor: int) -> Exact:
    variance = (moments.squares - Fraction(moments.total) ** 2 / moments.count) / divisor
    return _root(variance.numerator, variance.denominator)


def _root(numerator: int, denominator: int) -> Exact:
    """The square root, to far more digits than a double has."""
    shift = max(0, ROOT_BITS + denominator.bit_length() - numerator.bit_length())
    return Fraction(math.isqrt((numerator << 2 * shift) // denominator), 1 << shift)


_NUMERIC: dict[Aggregate, Callable[[Moments], Exact | None]] = {
    Aggregate.SUM: lambda moments: moments.total,
    Aggregate.AVG: _mean,
    Aggregate.STDDEV_SAMP: _sample_deviation,
    Aggregate.STDDEV_POP: _population_deviation,
}
NUMERIC = frozenset(_NUMERIC)
