"""Exact sums of many decimals, group by group: over columns where these hold them exactly."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keys.aggregates import Moments
from keys.number import Exact, exact
from pipeline.columns.intervals import Column
from pipeline.views.texts import DIGITS_MAX, are_decimals

WHOLE_MAX = 2**63 - 1


def moments(texts: pa.Array, starts: Column, *, squared: bool) -> list[Moments]:
    """Of the decimals of each group, of which there are some; group i is from `starts[i]` on."""
    found = _scaled(texts)
    if found is not None:
        scaled, places = found
        highest = int(np.abs(scaled).max(initial=0)) ** (2 if squared else 1)
        if highest * len(scaled) <= WHOLE_MAX:
            return _of_integers(scaled, 10**places, starts, squared=squared)
    numbers: list[Exact] = [_exact(text) for text in texts.to_pylist()]
    bounds = [*starts.tolist(), len(numbers)]
    return [Moments.of(numbers[low:high], squared=squared) for low, high in pairwise(bounds)]


def _scaled(texts: pa.Array) -> tuple[Column, int] | None:
    """Decimals as integers, and how many of their digits stand behind the point.

    None where one has an exponent, or more digits than a double is sure of.
    """
    if not are_decimals(texts):
        return None
    lengths, words = pc.binary_length(texts), texts.cast(pa.string())
    points = np.asarray(pc.find_substring(words, "."))
    behind = np.where(points < 0, 0, np.asarray(lengths) - points - 1)
    places = int(behind.max(initial=0))
    scaled = np.rint(np.asarray(words.cast(pa.float64())) * 10.0**places)
    if np.abs(scaled).max(initial=0) >= 10.0**DIGITS_MAX:
        return None
    return scaled.astype(np.int64), places


def _of_integers(scaled: Column, unit: int, starts: Column, *, squared: bool) -> list[Moments]:
    counts = np.diff(starts, append=len(scaled)).tolist()
    totals = np.add.reduceat(scaled, starts).tolist()
    squares = np.add.reduceat(scaled * scaled, starts).tolist() if squared else [0] * len(totals)
    if unit == 1:
        return list(map(Moments, counts, totals, squares))
    return [
        Moments(count, Fraction(total, unit), Fraction(square, unit * unit))
        for count, total, square in zip(counts, totals, squares, strict=True)
    ]


def _exact(text: bytes) -> Exact:
    found = exact(text)
    assert found is not None, "a decimal that a double shows"
    return found
