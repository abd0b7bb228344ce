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


@dataclass(frozen=True, slots=True)
class Cell:
    """A record's value that is not NULL, and the JSON text to show for it."""

    value: Scalar
    text: bytes


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
    if not known or len(known) < len(numbers):
        return NULL
    result = _NUMERIC[aggregate](known)
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


def _mean(numbers: list[Exact]) -> Exact:
    return Fraction(sum(numbers)) / len(numbers)


def _sample_deviation(numbers: list[Exact]) -> Exact | None:
    return _deviation(numbers, len(numbers) - 1) if len(numbers) > 1 else None


def _population_deviation(numbers: list[Exact]) -> Exact:
    return _deviation(numbers, len(numbers))


def _deviation(numbers: list[Exact], divisor: int) -> Exact:
    squares = sum(each * each for each in numbers)
    variance = (squares - Fraction(sum(numbers)) ** 2 / len(numbers)) / divisor
    return _root(variance.numerator, variance.denominator)


def _root(numerator: int, denominator: int) -> Exact:
    """The square root, to far more digits than a double has."""
    shift = max(0, ROOT_BITS + denominator.bit_length() - numerator.bit_length())
    return Fraction(math.isqrt((numerator << 2 * shift) // denominator), 1 << shift)


_NUMERIC: dict[Aggregate, Callable[[list[Exact]], Exact | None]] = {
    Aggregate.SUM: sum,
    Aggregate.AVG: _mean,
    Aggregate.STDDEV_SAMP: _sample_deviation,
    Aggregate.STDDEV_POP: _population_deviation,
}
