"""The cells that a projection keeps of a record: only the texts that its aggregates need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.filter.fields import BRACKETS_MAX
from tidegate.keys.filter.values import Scalar, number
from tidegate.keys.projection import NUMERIC, Column, Projection
from tidegate.keys.spec import read_fields
from tidegate.pipeline.intervals import Column as Integers

# --- one field's JSON texts as columns: values and decimals
#
# None is returned for texts that columns cannot judge. The closures of `keys/` then take one record
# after the other; tests compare these columns with them.

DIGITS_MAX = 15
"""A double keeps this many decimal digits exactly."""

_NOTHING = pa.array([b"null", b'""'], pa.binary())  # the empty text is NULL, as in AMPS
_DIGITS = r"^-?[0-9]+(\.[0-9]+)?$"
_OPENING = r"^[\[{]"


def values(texts: pa.Array) -> pa.Array | None:
    """Return the texts of values, null for NULL; None if a text is an array or an object."""
    if pc.any(pc.match_substring_regex(texts, _OPENING)).as_py():
        return None
    nothing = pc.fill_null(pc.is_in(texts, value_set=_NOTHING), True)
    return pc.if_else(nothing, pa.scalar(None, pa.binary()), texts)


def decimals(texts: pa.Array) -> pa.Array | None:
    """Return texts as `values` does if all are short decimals; else None."""
    found = values(texts)
    if found is None or not are_decimals(found):
        return None
    return found


def are_decimals(texts: pa.Array) -> bool:
    """Return whether all but nulls are plain decimals that a double holds exactly."""
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > DIGITS_MAX:
        return False
    return pc.all(pc.match_substring_regex(texts, _DIGITS)).as_py() is not False


WORD = b"?"


class CellForm(StrEnum):
    """Which text of a value a cell keeps."""

    FIELD = "field"
    """As a column without aggregate shows it; null where the field is missing."""

    VALUE = "value"
    """As `MIN`, `LAST` and their like show it; null where it is NULL."""

    NUMBER = "number"
    """The decimal to calculate with; `WORD` where it is none, null where it is NULL."""


def form_of(column: Column) -> CellForm:
    """Return the form in which a column's values are kept."""
    if column.aggregate is None:
        return CellForm.FIELD
    return CellForm.NUMBER if column.aggregate in NUMERIC else CellForm.VALUE


def numeral(value: Scalar) -> bytes:
    """Return a value as the decimal that it shows, `WORD` if it is not a number."""
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
        """Return the place of a column's cell in a record."""
        return len(self._projection.grouping.paths) + list(self._kept).index(_name(column))

    def columns(self, bodies: Sequence[bytes]) -> list[pa.Array]:
        """Return the cells of some records, column by column."""
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
            if path is not None and are_short and (form is CellForm.FIELD or len(path.steps) == 1):
                cells = _at_once(form, pa.array(texts[path], pa.binary()))
            if cells is None:
                cells = pa.array([_cell(column, form, body) for body in bodies], pa.binary())
            kept.append(cells)
        return [*grouping, *kept]


def _at_once(form: CellForm, texts: pa.Array) -> pa.Array | None:
    """Return the cells of one field, or None if its texts do not suffice."""
    match form:
        case CellForm.FIELD:
            return texts
        case CellForm.VALUE:
            return values(texts)
    return decimals(texts)


def _name(column: Column) -> tuple[str, CellForm]:
    return str(column.expression), form_of(column)


def _cell(column: Column, form: CellForm, body: bytes) -> bytes | None:
    if form is CellForm.FIELD:
        return column.shown(body)
    found = column.cell(body)
    if found is None:
        return None
    return numeral(found.value) if form is CellForm.NUMBER else found.text


# --- the records of some groups: together by group, oldest publication first

Place = tuple[int, str, int, int]
PLACE = ("batch", "file", "block", "position")
"""Where a record was last published: ordered by batch first, as pieces may arrive late."""


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """The records of several groups as columns, sorted by group: group i begins at `starts[i]`.

    The columns are `group`, `PLACE` and the cells.
    """

    groups: list[str]
    starts: Integers
    records: pa.Table

    @classmethod
    def of(cls, records: pa.Table) -> GroupRecords:
        """Sort records by group; within a group they keep their order, that of publication."""
        encoded = records.column("group").combine_chunks().dictionary_encode()
        codes = np.asarray(encoded.indices)
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)))
        return cls(encoded.dictionary.to_pylist(), starts, records.take(pa.array(order)))

    @property
    def ends(self) -> Integers:
        """Where each group ends."""
        return np.append(self.starts, self.records.num_rows)[1:]

    @property
    def sizes(self) -> Integers:
        """How many records each group has."""
        return self.ends - self.starts

    def cells(self, place: int) -> pa.Array:
        """Return one cell of each record."""
        return self.records.column(f"cell_{place}").combine_chunks()

    def by_group(self, column: Sequence[bytes | None]) -> list[Sequence[bytes | None]]:
        """Return a column cut by group."""
        bounds = [*self.starts.tolist(), len(column)]
        return [column[low:high] for low, high in pairwise(bounds)]

    def places(self, rows: Integers) -> list[Place]:
        """Return where some of the records were published."""
        chosen = self.records.select(PLACE).take(pa.array(rows))
        return list(zip(*(chosen.column(name).to_pylist() for name in PLACE), strict=True))
