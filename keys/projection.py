"""Aggregated subscriptions, as in AMPS: `[/id,SUM(/qty) AS /total]`, grouped by `[/id]`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

import msgspec

from tidegate.keys.errors import PathInvalid
from tidegate.keys.filter import Expression, Parser
from tidegate.keys.filter.tree import Call, Field, Node, walk
from tidegate.keys.filter.values import Scalar, number
from tidegate.keys.jsontext import (
    NULL,
    Exact,
    Members,
    canonical_value,
    exact,
    number_text,
    object_text,
    overlap,
    with_value_at,
)
from tidegate.keys.path import FieldPath
from tidegate.keys.reducers import MONOIDS, Reducer, join
from tidegate.keys.spec import KeySpec, conflation_key, read_fields

# Bits of a square root: three times those of a double, so that only the last step rounds.
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

    @property
    def number(self) -> Exact | None:
        """The value to calculate with; None if it is no number."""
        return _number(self.value)


@dataclass(frozen=True, slots=True)
class Moments:
    """The count of numbers, their sum, and the sum of their squares.

    They are exact, so that those of two sets of numbers can be added in any order.
    """

    count: int
    total: Exact
    squares: Exact

    @classmethod
    def of(cls, numbers: Sequence[Exact], *, squared: bool) -> Moments:
        """Sum up some numbers; squares are 0 unless they are asked for."""
        # Squares of exact numbers are long; only deviations pay for them.
        squares = sum(each * each for each in numbers) if squared else 0
        return cls(len(numbers), sum(numbers), squares)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    def __sub__(self, other: Moments) -> Moments:
        return Moments(
            self.count - other.count, self.total - other.total, self.squares - other.squares
        )


def aggregated(aggregate: Aggregate, cells: Sequence[Cell]) -> bytes:
    """Return the JSON text of an aggregate over a group's values, in publication order.

    The result is null without values, with a value that is not a number in a numeric aggregate,
    and with fewer than two values for STDDEV_SAMP.
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
    numbers = [cell.number for cell in cells]
    known = [each for each in numbers if each is not None]
    # A sum without one of its values would be wrong, and nothing would show it.
    if len(known) < len(numbers):
        return NULL
    return calculated(aggregate, Moments.of(known, squared=aggregate in DEVIATIONS))


def calculated(aggregate: Aggregate, moments: Moments) -> bytes:
    """Return the JSON text of a numeric aggregate; null of no values, or of too few."""
    result = _NUMERIC[aggregate](moments) if moments.count else None
    return NULL if result is None else number_text(result)


def _extreme(reducer: Reducer, cells: Sequence[Cell]) -> bytes:
    monoid = MONOIDS[reducer]
    best = None
    for cell in cells:
        best = join(monoid, best, monoid.lift(cell.text))
    return NULL if best is None else monoid.show(best) or NULL


def _number(value: Scalar) -> Exact | None:
    """Return a value to calculate with, as filters read numbers; a double is its decimal text."""
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
    """Return the square root, with far more digits than a double has."""
    # A root of integers: a double would lose digits before the root is taken.
    shift = max(0, ROOT_BITS + denominator.bit_length() - numerator.bit_length())
    return Fraction(math.isqrt((numerator << 2 * shift) // denominator), 1 << shift)


_NUMERIC: dict[Aggregate, Callable[[Moments], Exact | None]] = {
    Aggregate.SUM: lambda moments: moments.total,
    Aggregate.AVG: _mean,
    Aggregate.STDDEV_SAMP: _sample_deviation,
    Aggregate.STDDEV_POP: _population_deviation,
}
NUMERIC = frozenset(_NUMERIC)


COLUMNS_MAX = 64

CellOf = Callable[[bytes], Cell | None]


@dataclass(frozen=True, slots=True)
class Column:
    """An expression, the aggregate over it if any, and the place of its result in the row."""

    expression: Expression
    aggregate: Aggregate | None
    place: FieldPath

    @property
    def field(self) -> FieldPath | None:
        """The field that the expression is, if it is nothing more."""
        tree = self.expression.tree
        return tree.path if isinstance(tree, Field) else None

    def __str__(self) -> str:
        if self.aggregate is not None:
            return f"{self.aggregate}({self.expression}) AS {self.place}"
        if self.field == self.place:
            return str(self.place)
        return f"{self.expression} AS {self.place}"

    def result(self, records: Sequence[bytes]) -> bytes | None:
        """Return the column's JSON text for a group, None if it has no place in the row."""
        if self.aggregate is not None:
            cells = map(_cell_of(self.expression), records)
            return aggregated(self.aggregate, [cell for cell in cells if cell is not None])
        return self.shown(records[-1]) if records else None

    def cell(self, record: bytes) -> Cell | None:
        """Return a record's contribution to the aggregate, None if that is NULL."""
        return _cell_of(self.expression)(record)

    def shown(self, record: bytes) -> bytes | None:
        """Return the expression's JSON text in a record; a field as published, None if absent."""
        if self.field is not None:
            return read_fields((self.field,))(record)[0]
        return msgspec.json.encode(self.expression.evaluator()(record))


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields of a group's row, made of its records; hashable, equal if the texts are."""

    columns: tuple[Column, ...]
    grouping: KeySpec

    @classmethod
    def parse(
        cls, projection_text: str, projection_at: int, grouping_text: str, grouping_at: int
    ) -> Projection:
        """Parse both options' values, in brackets, with the position of each in the options.

        Raises:
            PathInvalid: brackets, AS or a path missing, two columns in one place, an aggregate
                inside an expression, a place in an array, more than 64 columns.
            FilterInvalid: a malformed expression.
        """
        grouping = KeySpec.parse(grouping_text, grouping_at)
        # A row is built of names: a place in an array has none to put it at.
        if any(isinstance(step, int) for path in grouping.paths for step in path.steps):
            raise PathInvalid("groups are by fields, not by places in an array", grouping_at)
        if projection_text[:1] != "[" or projection_text[-1:] != "]" or len(projection_text) < 2:
            raise PathInvalid("expected columns in brackets", projection_at)
        columns = _columns(projection_text[1:-1], projection_at + 1, grouping)
        return cls(columns, grouping)

    @property
    def projection_text(self) -> str:
        """The canonical value of `projection=`."""
        return "[" + ",".join(map(str, self.columns)) + "]"

    def __str__(self) -> str:
        """Return both options in canonical spelling."""
        return f"projection={self.projection_text},grouping={self.grouping}"

    def group_key(self, payload: bytes) -> str:
        """Return the canonical key of a record's group; a missing field counts as null."""
        return conflation_key(self.grouping)(payload)

    def fields(self, record: bytes) -> list[bytes | None]:
        """Return the JSON text of each grouping field, None where it is missing."""
        return read_fields(self.grouping.paths)(record)

    def row(self, records: Sequence[bytes]) -> bytes:
        """Return the row of a group from its records, oldest publication first."""
        fields = self.fields(records[-1]) if records else []
        return self.assembled(fields, [column.result(records) for column in self.columns])

    def assembled(self, fields: Sequence[bytes | None], results: Sequence[bytes | None]) -> bytes:
        """Build a row: first the grouping fields, as in the last record if any, then columns."""
        row: Members = {}
        for path, text in zip(self.grouping.paths, fields, strict=False):
            row = with_value_at(row, _steps(path), text)
        for column, text in zip(self.columns, results, strict=True):
            row = with_value_at(row, _steps(column.place), text)
        return object_text(row)


def _columns(text: str, position: int, grouping: KeySpec) -> tuple[Column, ...]:
    parser = Parser(text, position, aggregates=NAMES)
    columns: list[Column] = []
    while True:
        at = position + parser.next_start
        if len(columns) == COLUMNS_MAX:
            raise PathInvalid(f"at most {COLUMNS_MAX} columns", at)
        node = parser.value()
        if parser.accept("AS") is None:
            place = node.path if isinstance(node, Field) else None
        else:
            at_place, place = position + parser.next_start, parser.path()
            _check_place(place, at_place)
        column = _column(node, place, at)
        _check_free(column, columns, grouping, at)
        columns.append(column)
        if parser.at_end:
            return tuple(columns)
        parser.expect(",")


def _column(node: Node, place: FieldPath | None, position: int) -> Column:
    if place is None:
        raise PathInvalid("expected AS and a path after this expression", position)
    _check_place(place, position)
    name = node.name if isinstance(node, Call) and node.name in NAMES else None
    if name is not None and isinstance(node, Call):
        if len(node.arguments) != 1:
            raise PathInvalid("an aggregate is over one expression", position)
        node = node.arguments[0]
    if any(isinstance(inner, Call) and inner.name in NAMES for inner in walk(node)):
        raise PathInvalid("an aggregate cannot be part of an expression", position)
    aggregate = None if name is None else SYNONYMS.get(name) or Aggregate(name)
    return Column(Expression.of(node), aggregate, place)


def _check_place(place: FieldPath, position: int) -> None:
    if any(isinstance(step, int) for step in place.steps):
        raise PathInvalid("expected AS and a path of names", position)


def _check_free(column: Column, columns: list[Column], grouping: KeySpec, position: int) -> None:
    """Check that a column's place is free; a grouping field may repeat its own."""
    taken = [other.place for other in columns]
    # A grouping field may stand among the columns too, as in SQL.
    if column.aggregate is not None or column.field != column.place:
        taken += grouping.paths
    else:
        taken += [path for path in grouping.paths if path != column.place]
    if any(overlap(_steps(column.place), _steps(other)) for other in taken):
        raise PathInvalid("two columns in one place", position)


def _steps(path: FieldPath) -> tuple[str, ...]:
    return tuple(map(str, path.steps))


@lru_cache(maxsize=1_024)
def _cell_of(expression: Expression) -> CellOf:
    """Return `record -> value and the text to show`; a scalar field as published."""
    value_of = expression.evaluator()
    tree = expression.tree
    text_of = read_fields((tree.path,)) if isinstance(tree, Field) else None

    def cell_of(record: bytes) -> Cell | None:
        value = value_of(record)
        if value is None:
            return None
        text = text_of(record)[0] if text_of is not None else None
        # The first element of an array has no text of its own.
        if text is None or text[:1] in b"{[":
            text = msgspec.json.encode(value)
        return Cell(value, text)

    return cell_of
