"""What a projection keeps of a record: texts that its aggregates are made of, nothing more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from keys.aggregates import NUMERIC
from keys.filter.numbers import Scalar, number
from keys.projection import Column, Projection

WORD = b"?"


class Form(StrEnum):
    """How a value is kept."""

    FIELD = "field"
    """As a column without aggregate shows it; null where the field is missing."""

    VALUE = "value"
    """As `MIN`, `LAST` and their like show it; null where it is NULL."""

    NUMBER = "number"
    """The decimal to calculate with; `WORD` where it is none, null where it is NULL."""


def form_of(column: Column) -> Form:
    """The form in which a column's values are kept."""
    if column.aggregate is None:
        return Form.FIELD
    return Form.NUMBER if column.aggregate in NUMERIC else Form.VALUE


def numeral(value: Scalar) -> bytes:
    """A value as the decimal that it shows, `WORD` for what is no number."""
    found = number(value)
    if isinstance(found, int):
        return b"%d" % found
    return repr(found).encode() if math.isfinite(found) else WORD


@dataclass(frozen=True, slots=True)
class CellReader:
    """Reads the cells of records: those of the grouping fields, then one for each column.

    Columns over one expression that keep it in one form share a cell.
    """

    projection: Projection

    @property
    def count(self) -> int:
        """How many cells a record has."""
        return len(self.projection.grouping.paths) + len(self._kept())

    def place(self, column: Column) -> int:
        """Which of a record's cells is a column's."""
        return len(self.projection.grouping.paths) + list(self._kept()).index(_name(column))

    def columns(self, bodies: Sequence[bytes]) -> list[pa.Array]:
        """The cells of some records, column by column."""
        fields = [self.projection.fields(body) for body in bodies]
        grouping = [
            [found[at] for found in fields] for at in range(len(self.projection.grouping.paths))
        ]
        kept = [
            [_cell(column, form, body) for body in bodies]
            for (_, form), column in self._kept().items()
        ]
        return [pa.array(texts, pa.binary()) for texts in (*grouping, *kept)]

    def _kept(self) -> dict[tuple[str, Form], Column]:
        return {_name(column): column for column in self.projection.columns}


def _name(column: Column) -> tuple[str, Form]:
    return str(column.expression), form_of(column)


def _cell(column: Column, form: Form, body: bytes) -> bytes | None:
    if form is Form.FIELD:
        return column.shown(body)
    found = column.cell(body)
    if found is None:
        return None
    return numeral(found.value) if form is Form.NUMBER else found.text
