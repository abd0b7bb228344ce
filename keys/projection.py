"""Aggregated subscriptions, as in AMPS: `[/id,SUM(/qty) AS /total]`, grouped by `[/id]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from keys.aggregates import NAMES, SYNONYMS, Aggregate, Cell, aggregated
from keys.errors import PathInvalid
from keys.extract import FieldsOf, KeyOf, conflation_key, read_fields
from keys.filter import Expression, Parser
from keys.filter.tree import Call, Field, Node, walk
from keys.path import FieldPath
from keys.spec import KeySpec
from keys.value import Members, meet, placed, written

COLUMNS_MAX = 64

CellOf = Callable[[bytes], Cell | None]


@dataclass(frozen=True, slots=True)
class Column:
    """An expression, the aggregate over it if any, and where in the row its result stands."""

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
        """JSON text of the column for a group's records, None if it has no place in the row."""
        if self.aggregate is not None:
            cells = map(_cell_of(self.expression), records)
            return aggregated(self.aggregate, [cell for cell in cells if cell is not None])
        return self.shown(records[-1]) if records else None

    def cell(self, record: bytes) -> Cell | None:
        """What a record adds to the aggregate, None if that is NULL."""
        return _cell_of(self.expression)(record)

    def shown(self, record: bytes) -> bytes | None:
        """JSON text of the expression's value in a record; a field as published, None if absent."""
        if self.field is not None:
            return _reader((self.field,))(record)[0]
        return msgspec.json.encode(self.expression.evaluator()(record))


@dataclass(frozen=True, slots=True)
class Projection:
    """How the records of each group become one row; hashable, equal if the texts are."""

    columns: tuple[Column, ...]
    grouping: KeySpec

    @classmethod
    def parse(
        cls, projection_text: str, projection_at: int, grouping_text: str, grouping_at: int
    ) -> Projection:
        """From the options' values, in brackets, and where each stands in the options.

        Raises:
            PathInvalid: brackets, AS or a path missing, two columns in one place, an aggregate
                inside an expression, a place in an array, more than 64 columns.
            FilterInvalid: an expression that is none.
        """
        grouping = KeySpec.parse(grouping_text, grouping_at)
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
        """Both options in canonical spelling."""
        return f"projection={self.projection_text},grouping={self.grouping}"

    def group_key(self, payload: bytes) -> str:
        """The canonical key of a record's group; a missing field counts as null."""
        return _key_of(self.grouping)(payload)

    def fields(self, record: bytes) -> list[bytes | None]:
        """JSON text of each grouping field, None where it is missing."""
        return _reader(self.grouping.paths)(record)

    def row(self, records: Sequence[bytes]) -> bytes:
        """The row of a group from its records, oldest publication first."""
        fields = self.fields(records[-1]) if records else []
        return self.assembled(fields, [column.result(records) for column in self.columns])

    def assembled(self, fields: Sequence[bytes | None], results: Sequence[bytes | None]) -> bytes:
        """A row: the grouping fields first, as in the last record if any, then the columns."""
        row: Members = {}
        for path, text in zip(self.grouping.paths, fields, strict=False):
            row = placed(row, _steps(path), text)
        for column, text in zip(self.columns, results, strict=True):
            row = placed(row, _steps(column.place), text)
        return written(row)


def _columns(text: str, position: int, grouping: KeySpec) -> tuple[Column, ...]:
    parser = Parser(text, position, aggregates=NAMES)
    columns: list[Column] = []
    while True:
        at = position + parser.at
        if len(columns) == COLUMNS_MAX:
            raise PathInvalid(f"at most {COLUMNS_MAX} columns", at)
        node = parser.value()
        if parser.accept("AS") is None:
            place = node.path if isinstance(node, Field) else None
        else:
            at_place, place = position + parser.at, parser.path()
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
        raise PathInvalid("an aggregate stands by itself, not in an expression", position)
    aggregate = None if name is None else SYNONYMS.get(name) or Aggregate(name)
    return Column(Expression.of(node), aggregate, place)


def _check_place(place: FieldPath, position: int) -> None:
    if any(isinstance(step, int) for step in place.steps):
        raise PathInvalid("expected AS and a path of names", position)


def _check_free(column: Column, columns: list[Column], grouping: KeySpec, position: int) -> None:
    """A column has its place for itself; one that is a grouping field may repeat it."""
    taken = [other.place for other in columns]
    if column.aggregate is not None or column.field != column.place:
        taken += grouping.paths
    else:
        taken += [path for path in grouping.paths if path != column.place]
    if any(meet(_steps(column.place), _steps(other)) for other in taken):
        raise PathInvalid("two columns in one place", position)


def _steps(path: FieldPath) -> tuple[str, ...]:
    return tuple(map(str, path.steps))


@lru_cache(maxsize=1_024)
def _reader(paths: tuple[FieldPath, ...]) -> FieldsOf:
    return read_fields(paths)


@lru_cache(maxsize=1_024)
def _key_of(grouping: KeySpec) -> KeyOf:
    return conflation_key(grouping)


@lru_cache(maxsize=1_024)
def _cell_of(expression: Expression) -> CellOf:
    """`record -> its value with the text to show`: of a field that is a scalar, as published."""
    value_of = expression.evaluator()
    tree = expression.tree
    text_of = _reader((tree.path,)) if isinstance(tree, Field) else None

    def cell_of(record: bytes) -> Cell | None:
        value = value_of(record)
        if value is None:
            return None
        text = text_of(record)[0] if text_of is not None else None
        if text is None or text[:1] in b"{[":
            text = msgspec.json.encode(value)
        return Cell(value, text)

    return cell_of
