"""Running aggregates: what the row of a large group needs of its records, kept as these change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sortedcontainers import SortedList

from tidegate.conflation.frame import Frame
from tidegate.keys.jsontext import NULL, canonical_value, comparable, is_number, string
from tidegate.keys.projection import (
    DEVIATIONS,
    NUMERIC,
    Aggregate,
    Cell,
    Moments,
    Projection,
    calculated,
)


class RunningGroup:
    """The aggregates of one group, brought up to date when its row is made.

    A record that changes often is taken out and put in once for each row, so a row costs the
    records that have changed since the last one, times the logarithm of the group. At first that
    is all of them.
    """

    def __init__(self, projection: Projection, records: Mapping[str, Frame]) -> None:
        self._projection = projection
        self._columns = [
            (column, _running(column.aggregate))
            for column in projection.columns
            if column.aggregate is not None
        ]
        # By record key, what the aggregates still have of records that have changed.
        self._stale: dict[str, Frame | None] = dict.fromkeys(records)

    def record_change(self, record_key: str, before: Frame | None) -> None:
        """Record a change of a record; `before`: its earlier frame, if it was in this group."""
        self._stale.setdefault(record_key, before)

    @property
    def stale(self) -> int:
        """The number of records that have changed since the aggregates were brought up to date."""
        return len(self._stale)

    def row(self, records: dict[str, Frame]) -> bytes:
        """Return the row of the group, which has these records now, oldest publication first."""
        self.catch_up(records, len(self._stale))
        last = next(reversed(records.values())).payload
        running = iter(self._columns)
        results = [
            column.shown(last) if column.aggregate is None else next(running)[1].text()
            for column in self._projection.columns
        ]
        return self._projection.assembled(self._projection.fields(last), results)

    def catch_up(self, records: Mapping[str, Frame], most: int) -> None:
        """Bring the aggregates up to date with the group's records, or with so many of them."""
        for _ in range(min(most, len(self._stale))):
            # In any order: sums are exact, and offsets order what is sorted.
            record_key, before = self._stale.popitem()
            if before is not None:
                self._take(before)
            if (now := records.get(record_key)) is not None:
                self._put(now)

    def _put(self, record: Frame) -> None:
        for column, running in self._columns:
            if (cell := column.cell(record.payload)) is not None:
                running.put(cell, record.offset)

    def _take(self, record: Frame) -> None:
        for column, running in self._columns:
            # Read again in place of being kept: a cell of each record would cost more memory than
            # the records themselves, which are shared.
            if (cell := column.cell(record.payload)) is not None:
                running.take(cell, record.offset)


class _Running(ABC):
    """One aggregate over cells that come and go; `offset` is that of the cell's record."""

    @abstractmethod
    def put(self, cell: Cell, offset: int) -> None:
        """Count a cell in."""

    @abstractmethod
    def take(self, cell: Cell, offset: int) -> None:
        """Count out a cell that was put with this offset."""

    @abstractmethod
    def text(self) -> bytes:
        """Return the JSON text of the aggregate."""


class _Distinct(_Running):
    """COUNT and COUNT_DISTINCT: how often each value is there."""

    def __init__(self, *, distinct: bool) -> None:
        self._is_distinct = distinct
        self._times: Counter[str] = Counter()

    def put(self, cell: Cell, offset: int) -> None:
        self._times[self._value(cell)] += 1

    def take(self, cell: Cell, offset: int) -> None:
        value = self._value(cell)
        self._times[value] -= 1
        if not self._times[value]:
            del self._times[value]

    def text(self) -> bytes:
        found = len(self._times) if self._is_distinct else self._times.total()
        return str(found).encode()

    def _value(self, cell: Cell) -> str:
        return canonical_value(cell.text) if self._is_distinct else ""


class _Sums(_Running):
    """Numeric aggregates; sums are exact, so that taking a number out leaves no rounding behind."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate
        self._is_squared = aggregate in DEVIATIONS
        self._moments = Moments(0, 0, 0)
        self._others = 0  # values that are no numbers: with one of them there is no result

    def put(self, cell: Cell, offset: int) -> None:
        if (moments := self._of(cell)) is None:
            self._others += 1
        else:
            self._moments += moments

    def take(self, cell: Cell, offset: int) -> None:
        if (moments := self._of(cell)) is None:
            self._others -= 1
        else:
            self._moments -= moments

    def text(self) -> bytes:
        return NULL if self._others else calculated(self._aggregate, self._moments)

    def _of(self, cell: Cell) -> Moments | None:
        number = cell.number
        return None if number is None else Moments.of([number], squared=self._is_squared)


class _Sorted(_Running):
    """FIRST, LAST, MIN and MAX: one end of the cells in order.

    Offsets break ties, as each record has one of its own: of equal extremes the one published
    first is shown.
    """

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate
        self._cells: Any = SortedList()

    def put(self, cell: Cell, offset: int) -> None:
        if (entry := self._entry(cell.text, offset)) is not None:
            self._cells.add(entry)

    def take(self, cell: Cell, offset: int) -> None:
        if (entry := self._entry(cell.text, offset)) is not None:
            self._cells.remove(entry)

    def text(self) -> bytes:
        if not self._cells:
            return NULL
        end = 0 if self._aggregate in (Aggregate.FIRST, Aggregate.MIN) else -1
        text: bytes = self._cells[end][-1]
        return text

    def _entry(self, text: bytes, offset: int) -> Sequence[Any] | None:
        """Return a cell's place and text; None if it is nothing that has an extreme."""
        if self._aggregate in (Aggregate.FIRST, Aggregate.LAST):
            return offset, text
        is_max = self._aggregate is Aggregate.MAX
        # A string is an extreme only where there is no number, so numbers are at the end in use.
        if is_number(text):
            return int(is_max), comparable(text), -offset if is_max else offset, text
        words = string(text)
        if words is None:
            return None
        return int(not is_max), words, -offset if is_max else offset, text


def _running(aggregate: Aggregate) -> _Running:
    if aggregate in NUMERIC:
        return _Sums(aggregate)
    if aggregate in (Aggregate.COUNT, Aggregate.COUNT_DISTINCT):
        return _Distinct(distinct=aggregate is Aggregate.COUNT_DISTINCT)
    return _Sorted(aggregate)
