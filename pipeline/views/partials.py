"""Parts of an aggregate: what the records of one task come to, joined to what all of them do.

A record stands in one task, those of a group in several. Each tells of its own what is enough to
go on with, exactly; in whichever order parts are joined, the result is `keys.aggregates`' over
all records in order of publication. Parts are lists, numbers and texts, to be written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keys.aggregates import DEVIATIONS, Aggregate, Moments, calculated
from keys.monoids import Reducer
from keys.number import Exact
from keys.projection import Column
from keys.value import NULL, canonical_value
from pipeline.views.cells import WORD
from pipeline.views.extremes import Extreme, published
from pipeline.views.members import Members
from pipeline.views.sums import moments

Part = Any


class Parts(Protocol):
    """How a column's parts are made, joined and shown."""

    def of(self, cells: pa.Array, members: Members) -> list[Part]:
        """One for each group; `cells` are the column's, in the order of `members`."""

    def shown(self, parts: Sequence[Part]) -> bytes | None:
        """JSON text of what the parts of one group come to; None where nothing is shown."""


def parts_of(column: Column) -> Parts:
    """The way of a column."""
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

    def of(self, cells: pa.Array, members: Members) -> list[Part]:
        """Numbers."""
        there = np.asarray(cells.is_valid()).astype(np.int64)
        return list(np.add.reduceat(there, members.starts).tolist())

    def shown(self, parts: Sequence[Part]) -> bytes:
        """Their sum."""
        return b"%d" % sum(parts)


class Distinct:
    """The values that differ, each in its one spelling."""

    def of(self, cells: pa.Array, members: Members) -> list[Part]:
        """Lists of spellings."""
        return [
            sorted({canonical_value(text) for text in texts if text is not None})
            for texts in members.parts(cells.to_pylist())
        ]

    def shown(self, parts: Sequence[Part]) -> bytes:
        """How many there are together."""
        return b"%d" % len(set().union(*parts))


@dataclass(frozen=True, slots=True)
class Edge:
    """The first or the last value; with `absent` that of the last record, be it there or not."""

    last: bool
    absent: bool = False

    def of(self, cells: pa.Array, members: Members) -> list[Part]:
        """The value and where it was published, or None."""
        rows = np.arange(len(cells))
        if self.absent:
            found = members.ends - 1
        elif self.last:
            there = np.where(np.asarray(cells.is_valid()), rows, -1)
            found = np.maximum.reduceat(there, members.starts)
        else:
            there = np.where(np.asarray(cells.is_valid()), rows, len(cells))
            found = np.minimum.reduceat(there, members.starts)
        is_found = (found >= 0) & (found < len(cells))
        places = iter(members.places(found[is_found]))
        texts = iter(cells.take(pa.array(found[is_found])).to_pylist())
        return [[next(places), next(texts)] if each else None for each in is_found.tolist()]

    def shown(self, parts: Sequence[Part]) -> bytes | None:
        """The text of the part that was published first or last."""
        found = sorted((part for part in parts if part is not None), key=published)
        if not found:
            return None if self.absent else NULL
        text: bytes | None = found[-1 if self.last else 0][1]
        return text


NEWEST = Edge(last=True, absent=True)


@dataclass(frozen=True, slots=True)
class Numeric:
    """What is calculated: moments as texts of fractions, and whether a value was no number."""

    aggregate: Aggregate

    def of(self, cells: pa.Array, members: Members) -> list[Part]:
        """Count, sum, sum of squares; None where there is a word."""
        words = np.asarray(pc.fill_null(pc.equal(cells, pa.scalar(WORD, pa.binary())), False))
        has_word = np.logical_or.reduceat(words, members.starts)
        there = np.asarray(cells.is_valid()) & ~words
        counts = np.add.reduceat(there.astype(np.int64), members.starts)
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

    def shown(self, parts: Sequence[Part]) -> bytes:
        """The aggregate of all; null where there was a word."""
        if any(part is None for part in parts):
            return NULL
        return calculated(self.aggregate, sum(map(_read, parts), Moments(0, 0, 0)))


def _written(found: Moments) -> list[Any]:
    return [found.count, str(found.total), str(found.squares)]


def _read(part: Sequence[Any]) -> Moments:
    count, total, squares = part
    return Moments(count, _exact(total), _exact(squares))


def _exact(text: str) -> Exact:
    return Fraction(text) if "/" in text else int(text)
