"""What a projection keeps of a record: texts that its aggregates are made of, nothing more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import pyarrow as pa

from keys.aggregates import NUMERIC
from keys.extract import read_fields
from keys.filter.allowance import BRACKETS_MAX
from keys.filter.numbers import Scalar, number
from keys.projection import Column, Projection
from pipeline.views.texts import decimals, values

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


class CellReader:
    """Reads the cells of records: those of the grouping fields, then one for each column.

    Columns over one expression that keep it in one form share a cell. Fields are read together.
    """

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._kept = {_name(column): column for column in projection.columns}
        plain = (column.field for column in self._kept.values())
        self._paths = tuple(dict.fromkeys((*projection.grouping.paths, *filter(None, plain))))
        self._texts_of = read_fields(self._paths)

    @property
    def count(self) -> int:
        """How many cells a record has."""
        return len(self._projection.grouping.paths) + len(self._kept)

    def place(self, column: Column) -> int:
        """Which of a record's cells is a column's."""
        return len(self._projection.grouping.paths) + list(self._kept).index(_name(column))

    def columns(self, bodies: Sequence[bytes]) -> list[pa.Array]:
        """The cells of some records, column by column."""
        found = (
            zip(*map(self._texts_of, bodies), strict=True) if bodies else [[]] * len(self._paths)
        )
        texts = dict(zip(self._paths, found, strict=True))
        grouping = [pa.array(texts[path], pa.binary()) for path in self._projection.grouping.paths]
        are_short = max(map(len, bodies), default=0) <= BRACKETS_MAX
        kept = []
        for (_, form), column in self._kept.items():
            path = column.field
            cells = None
            if path is not None and are_short and (form is Form.FIELD or len(path.steps) == 1):
                cells = _at_once(form, pa.array(texts[path], pa.binary()))
            if cells is None:
                cells = pa.array([_cell(column, form, body) for body in bodies], pa.binary())
            kept.append(cells)
        return [*grouping, *kept]


def _at_once(form: Form, texts: pa.Array) -> pa.Array | None:
    """The cells of one field, if its texts say them by themselves."""
    match form:
        case Form.FIELD:
            return texts
        case Form.VALUE:
            return values(texts)
    return decimals(texts)


def _name(column: Column) -> tuple[str, Form]:
    return str(column.expression), form_of(column)


def _cell(column: Column, form: Form, body: bytes) -> bytes | None:
    if form is Form.FIELD:
        return column.shown(body)
    found = column.cell(body)
    if found is None:
        return None
    return numeral(found.value) if form is Form.NUMBER else found.text
