"""What reducers make of many messages: a column of states for each reducer.

States of plain numbers and texts are columns, exact by construction: a text of at most fifteen
characters is the only such number near its double, and sums are integers of a decimal place. For
what else a message may have (a longer number, an array, a string among numbers) the states are
those of `keys/`, joined one by one; the columns are measured by these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.keys.jsontext import NULL, is_number, items, number_text
from tidegate.keys.reducers import MONOIDS, Reducer, join
from tidegate.pipeline.intervals import Column, Runs
from tidegate.pipeline.json_fields.field_columns import (
    GREATEST,
    MISSING,
    FieldColumn,
    Texts,
    exact_numbers,
)

SCALES = (0, 1, 2, 3, 4, 6, 9)  # decimal places of sums
SUM_MAX = 2**62
DOUBLE_MAX = 2**53  # integers up to it are doubles, and their quotient is rounded once

# --- columns of states: of each row, and in all three None or MISSING for no state


@dataclass(frozen=True, slots=True)
class ChosenTexts:
    """States of `first`, `last`, `min` and `max`: one of the texts.

    `numbers` are those of the texts, NaN where there is none; empty for `first` and `last`.
    """

    reducer: Reducer
    texts: Texts
    numbers: Column

    def then(self, later: ChosenTexts) -> ChosenTexts:
        """Return both, one after the other."""
        numbers = np.concatenate([self.numbers, later.numbers])
        return ChosenTexts(self.reducer, self.texts.joined(later.texts), numbers)

    def take(self, rows: Column) -> ChosenTexts:
        """Return those of some rows."""
        numbers = self.numbers
        if len(numbers):
            numbers = np.where(rows == MISSING, np.nan, numbers[rows])
        return ChosenTexts(self.reducer, self.texts.take(rows), numbers)

    def of_runs(self, runs: Runs, is_put: Column) -> ChosenTexts:
        """Return one for each run; of equal numbers the first."""
        if self.reducer is Reducer.LAST:
            return self.take(last_where(is_put, runs))
        if self.reducer is Reducer.FIRST:
            return self.take(_first_where(self.texts.is_there[runs.order], runs))
        found = self.numbers[runs.order]
        best = (np.fmin if self.reducer is Reducer.MIN else np.fmax).reduceat(found, runs.starts)
        # Never equal where no number is in a run: its best is NaN.
        is_best = found == np.repeat(best, runs.ends - runs.starts)
        return self.take(_first_where(is_best, runs))

    def shown(self) -> pa.Array:
        """Return the results as JSON texts, null for none."""
        return self.texts.array()

    def saved(self, is_put: Sequence[bool]) -> list[bytes | None]:
        """Return what `Monoid.save` writes of each."""
        texts = self.shown().to_pylist()
        if self.reducer is Reducer.LAST:
            # A last message without the field is a state, a removal is none.
            pairs = zip(texts, is_put, strict=True)
            return [b"[%s]" % (text or b"") if put else None for text, put in pairs]
        if self.reducer is Reducer.FIRST:
            return texts  # type: ignore[no-any-return]  # of bytes, as the array is binary
        return [None if text is None else b"[%s,null]" % text for text in texts]


@dataclass(frozen=True, slots=True)
class Totals:
    """States of `sum`, `avg` and `count`: sums in units of `10 ** -scale`, and of how many."""

    reducer: Reducer
    sums: Column
    counts: Column
    scale: int = 0

    def then(self, later: Totals) -> Totals | None:
        """Return both, one after the other; None if 64 bits are too few."""
        scale = max(self.scale, later.scale)
        sums = []
        for each in (self, later):
            factor = 10 ** (scale - each.scale)
            if factor > 1 and int(np.abs(each.sums).max(initial=0)) * factor >= SUM_MAX:
                return None
            sums.append(each.sums * factor if factor > 1 else each.sums)
        counts = np.concatenate([self.counts, later.counts])
        return Totals(self.reducer, np.concatenate(sums), counts, scale)

    def take(self, rows: Column) -> Totals:
        """Return those of some rows."""
        return Totals(self.reducer, self.sums[rows], self.counts[rows], self.scale)

    def of_runs(self, runs: Runs, is_put: Column) -> Totals | None:
        """Return one for each run; None if 64 bits are too few."""
        counts = np.add.reduceat(self.counts[runs.order], runs.starts)
        if self.reducer is Reducer.COUNT:
            return Totals(self.reducer, np.zeros_like(counts), counts)
        # In doubles, which do not overflow; a bound needs no exact sum.
        if np.abs(self.sums.astype(np.float64)).sum() >= SUM_MAX:
            return None
        sums = np.add.reduceat(self.sums[runs.order], runs.starts)
        return Totals(self.reducer, sums, counts, self.scale)

    def shown(self) -> pa.Array:
        """Return the results as JSON texts, null for none."""
        is_there = self.counts > 0
        if self.reducer is Reducer.COUNT:
            found = self.counts
        elif self.reducer is Reducer.SUM and self.scale == 0:
            found = self.sums
        else:
            return pa.array(list(map(self._shown, *self._quotients())), pa.binary())
        return pa.array(found, pa.int64(), mask=~is_there).cast(pa.string()).cast(pa.binary())

    def _quotients(self) -> tuple[list[int], list[int], list[float]]:
        below = np.full(len(self.sums), 10**self.scale)
        if self.reducer is Reducer.AVG:
            below = below * self.counts
        below[self.counts == 0] = 0
        is_exact = (np.abs(self.sums) < DOUBLE_MAX) & (below < DOUBLE_MAX) & (below > 0)
        near = np.divide(self.sums, below, out=np.full(len(below), np.nan), where=is_exact)
        return self.sums.tolist(), below.tolist(), near.tolist()

    def _shown(self, above: int, below: int, near: float) -> bytes | None:
        if not below:
            return None
        # In these bounds Python writes a double as JSON is written here, except for whole numbers.
        if 1e-4 <= abs(near) < GREATEST and not near.is_integer():
            return repr(near).encode()
        return number_text(Fraction(above, below))

    def saved(self, is_put: Sequence[bool]) -> list[bytes | None]:
        """Return what `Monoid.save` writes of each."""
        pairs = zip(self.sums.tolist(), self.counts.tolist(), strict=True)
        return [self._saved(total, count) if count else None for total, count in pairs]

    def _saved(self, total: int, count: int) -> bytes:
        if self.reducer is Reducer.COUNT:
            return b'"%d"' % count
        text = b'"%s"' % str(Fraction(total, 10**self.scale)).encode()
        return text if self.reducer is Reducer.SUM else b"[%s,%d]" % (text, count)


@dataclass(frozen=True, slots=True)
class States:
    """States as `keys/` has them, of any values."""

    reducer: Reducer
    states: list[Any]

    @classmethod
    def of_saved(cls, reducer: Reducer, saved: Sequence[bytes | None]) -> States:
        """Return the states of which these texts were saved."""
        load = MONOIDS[reducer].load
        return cls(reducer, [None if text is None else load(text) for text in saved])

    def then(self, later: States) -> States:
        """Return both, one after the other."""
        return States(self.reducer, [*self.states, *later.states])

    def take(self, rows: Column) -> States:
        """Return those of some rows."""
        return States(self.reducer, [self.states[row] for row in rows.tolist()])

    def of_runs(self, runs: Runs, is_put: Column) -> States:
        """Return one for each run."""
        joined = partial(join, MONOIDS[self.reducer])
        by_key = [self.states[row] for row in runs.order.tolist()]
        found = []
        for start, end in zip(runs.starts.tolist(), runs.ends.tolist(), strict=True):
            state = by_key[start]
            for later in by_key[start + 1 : end]:
                state = joined(state, later)
            found.append(state)
        return States(self.reducer, found)

    def shown(self) -> pa.Array:
        """Return the results as JSON texts, null for none."""
        show = MONOIDS[self.reducer].show
        texts = [None if state is None else show(state) for state in self.states]
        return pa.array(texts, pa.binary())

    def saved(self, is_put: Sequence[bool]) -> list[bytes | None]:
        """Return what `Monoid.save` writes of each."""
        save = MONOIDS[self.reducer].save
        return [None if state is None else save(state) for state in self.states]


StateColumn = ChosenTexts | Totals | States


def last_where(is_it: Column, runs: Runs) -> Column:
    """Return of each run the last row of which this is true; MISSING if there is none."""
    places = np.where(is_it[runs.order], np.arange(len(runs.order)), MISSING)
    last = np.maximum.reduceat(places, runs.starts)
    found: Column = np.where(last == MISSING, MISSING, runs.order[last])
    return found


def _first_where(is_it: Column, runs: Runs) -> Column:
    """Return of each run the first row; `is_it` is in the order of the runs."""
    count = len(runs.order)
    first = np.minimum.reduceat(np.where(is_it, np.arange(count), count), runs.starts)
    rows: Column = np.where(first < count, runs.order[np.minimum(first, count - 1)], MISSING)
    return rows


# --- states of texts: of messages, and of what a table kept


def states_of(reducer: Reducer, found: FieldColumn) -> StateColumn:
    """Return the states of messages, of which this is one field."""
    if reducer is Reducer.LAST:
        return ChosenTexts(reducer, found.texts, _NONE)
    present = found.without_nulls
    if reducer is Reducer.FIRST:
        return ChosenTexts(reducer, present.texts, _NONE)
    if reducer is Reducer.COUNT:
        counts = present.is_there.astype(np.int64)
        return Totals(reducer, np.zeros(len(counts), np.int64), counts)
    states = None
    if reducer in (Reducer.MIN, Reducer.MAX, Reducer.SUM, Reducer.AVG):
        states = _of_numbers(reducer, present)
    if states is None:
        lift = MONOIDS[reducer].lift
        texts = present.texts.array().to_pylist()
        return States(reducer, [None if text is None else lift(text) for text in texts])
    return states


def _of_numbers(reducer: Reducer, found: FieldColumn) -> StateColumn | None:
    numbers = exact_numbers(found)
    if numbers is None:
        return None
    if reducer in (Reducer.MIN, Reducer.MAX):
        return ChosenTexts(reducer, found.texts, numbers)
    scaled = _scaled(numbers)
    if scaled is None:
        return None
    sums, scale = scaled
    return Totals(reducer, sums, found.is_there.astype(np.int64), scale)


def _scaled(numbers: Column) -> tuple[Column, int] | None:
    """Return exact numbers as integers of a scale, 0 for NaN; None if none of the scales will do.

    Two decimals of at most fifteen digits are one if their doubles are.
    """
    known = np.where(np.isnan(numbers), 0.0, numbers)
    for scale in SCALES:
        whole = np.rint(known * 10.0**scale)
        if (np.abs(whole) >= GREATEST).any():
            return None
        if (whole / 10.0**scale == known).all():
            return whole.astype(np.int64), scale
    return None


def states_of_saved(reducer: Reducer, saved: Sequence[bytes | None]) -> StateColumn:
    """Return the states of which these texts were saved, as columns if those hold them."""
    if reducer is Reducer.FIRST:
        return ChosenTexts(reducer, FieldColumn.of_array(pa.array(saved, pa.binary())).texts, _NONE)
    if reducer is Reducer.LAST:
        texts = [None if text is None else text[1:-1] or None for text in saved]
        return ChosenTexts(reducer, FieldColumn.of_array(pa.array(texts, pa.binary())).texts, _NONE)
    found: StateColumn | None = None
    if reducer in (Reducer.MIN, Reducer.MAX):
        pairs = [(None, NULL) if text is None else map(bytes, items(text) or ()) for text in saved]
        numbers, words = zip(*pairs, strict=True) if pairs else ((), ())
        if all(number is None or is_number(number) for number in numbers) and {*words} <= {NULL}:
            found = _of_numbers(reducer, FieldColumn.of_array(pa.array(numbers, pa.binary())))
    elif reducer in (Reducer.SUM, Reducer.AVG, Reducer.COUNT):
        found = _totals_of_saved(reducer, saved)
    return States.of_saved(reducer, saved) if found is None else found


def _totals_of_saved(reducer: Reducer, saved: Sequence[bytes | None]) -> Totals | None:
    totals, counts = [Fraction(0)] * len(saved), [0] * len(saved)
    for row, text in enumerate(saved):
        if text is None:
            continue
        total, count = map(bytes, items(text) or (text, b"1"))
        number = Fraction(total.decode().strip('"'))
        if reducer is Reducer.COUNT:
            counts[row] = int(number)
        else:
            totals[row], counts[row] = number, int(count)
    for scale in SCALES:
        sums = [total * 10**scale for total in totals]
        if all(one.denominator == 1 and abs(one) < SUM_MAX for one in sums):
            # Without rows there is nothing to tell that both are integers.
            whole = np.array(list(map(int, sums)), np.int64)
            return Totals(reducer, whole, np.array(counts, np.int64), scale)
    return None


_NONE = np.zeros(0)
