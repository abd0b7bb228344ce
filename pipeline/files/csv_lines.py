"""Lines of CSV as messages: JSON objects, or the line itself with the reason of its refusal.

A line break always ends a row, even inside quotes, so that a file can be split at any line break.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.errors import JsonInvalid
from tidegate.keys.lines import is_utf8
from tidegate.pipeline.files.block_format import BlockFormat
from tidegate.pipeline.files.csv_values import values_of
from tidegate.pipeline.files.objects import SHOWN_MAX, beyond_json, joined, objects_of
from tidegate.pipeline.intervals import Column

SPACE = " \t\r\n"
CELL_CHARACTERS_MAX = 1 << 30  # as many as a line may have
NOT_UTF_8 = "not valid UTF-8"


class Rows(NamedTuple):
    """Lines that were read; `row` is the number of the first, from 0.

    `bodies` are objects, or the lines themselves if refused or blank; `refused` are the reasons.
    """

    row: int
    bodies: pa.Array
    refused: pa.Array


class HeaderInvalidError(ValueError):
    """A file's header differs from the columns in names or order; `number` is its line, from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.reason = reason


def csv_rows(
    lines_of_block: Iterable[pa.Array],
    block_format: BlockFormat,
    folder_fields: str,
    *,
    has_header: bool,
) -> Iterator[Rows]:
    """Yield the rows of a block without its header; `folder_fields` as in `objects_of`.

    Raises:
        HeaderInvalidError: the header does not name the columns.
    """
    csv.field_size_limit(CELL_CHARACTERS_MAX)
    row = 0
    for lines in lines_of_block:
        given = len(lines)
        if has_header:
            texts = lines.to_pylist()
            first = next((at for at, line in enumerate(texts) if line.strip()), given)
            if first < given:
                _require_header(row + first + 1, texts[first], block_format)
                has_header = False
            lines = lines.slice(first + 1)
        if len(lines):
            yield Rows(row + given - len(lines), *_read(lines, block_format, folder_fields))
        row += given


def _require_header(number: int, line: bytes, block_format: BlockFormat) -> None:
    """Compare a header as Spark does: ignore case; an empty name is `_c` and its position."""
    text = line.decode(errors="replace")
    [cells] = csv.reader([text], delimiter=block_format.delimiter)
    names = [field.name for field in block_format.fields]
    found = [cell or f"_c{at}" for at, cell in enumerate(cells)]
    if [name.lower() for name in found] != [name.lower() for name in names]:
        wanted = block_format.delimiter.join(names)[:SHOWN_MAX]
        reason = f"the header is {text[:SHOWN_MAX]}, expected {wanted}"
        raise HeaderInvalidError(number, reason)


def _read(
    lines: pa.Array, block_format: BlockFormat, folder_fields: str
) -> tuple[pa.Array, pa.Array]:
    """Return bodies and reasons."""
    is_text = _is_utf_8(lines)
    texts = lines.filter(pa.array(is_text)).view(pa.string())
    is_blank = np.zeros(len(lines), np.bool_)
    trimmed = pc.ascii_trim(texts, characters=SPACE)
    is_blank[is_text] = np.asarray(pc.equal(pc.binary_length(trimmed), 0))
    given = np.flatnonzero(is_text & ~is_blank)
    cells, is_row = _split(lines.take(pa.array(given)).view(pa.string()).to_pylist(), block_format)
    reasons = np.full(len(lines), None, object)
    reasons[~is_text] = NOT_UTF_8
    names = ", ".join(field.name for field in block_format.fields)
    reasons[given[~is_row]] = f"does not match the columns {names[:SHOWN_MAX]}"
    rows = given[is_row]
    values = []
    for field, column in zip(block_format.fields, cells, strict=True):
        found, is_wrong = values_of(str(field.kind), column)
        values.append(found)
        for at in rows[is_wrong].tolist():
            reasons[at] = reasons[at] or f"{field.name[:SHOWN_MAX]} is not of type {field.kind}"
    beyond = beyond_json(block_format.fields, values)
    if beyond is not None:
        for at in np.flatnonzero(beyond.is_valid()).tolist():
            reasons[rows[at]] = reasons[rows[at]] or beyond[at].as_py()
    is_object = np.zeros(len(lines), np.bool_)
    is_object[rows] = [reason is None for reason in reasons[rows].tolist()]
    objects = objects_of(block_format.fields, values, folder_fields).view(pa.binary())
    if is_object.all():
        return objects, pa.nulls(len(lines), pa.string())
    objects = objects.filter(pa.array(is_object[rows]))
    bodies = pc.replace_with_mask(lines, pa.array(is_object), objects)
    return bodies, joined(f"{JsonInvalid.code}: ", pa.array(reasons, pa.string()))


def _is_utf_8(lines: pa.Array) -> Column:
    try:
        lines.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return np.array([is_utf8(line) for line in lines.to_pylist()], np.bool_)
    return np.ones(len(lines), np.bool_)


def _split(texts: Sequence[str], block_format: BlockFormat) -> tuple[list[pa.Array], Column]:
    """Return the cells of each column, and which lines have as many cells as there are columns.

    An empty cell is null, quoted or not.
    """
    count = len(block_format.fields)
    rows = _rows(texts, block_format.delimiter)
    is_row = np.array([len(row) == count for row in rows], np.bool_)
    whole = [row for row in rows if len(row) == count]
    columns = zip(*whole, strict=True) if whole else [[] for _ in range(count)]
    return [pa.array([cell or None for cell in column], pa.string()) for column in columns], is_row


def _rows(texts: Sequence[str], delimiter: str) -> list[list[str]]:
    """Return the cells of each line; no cells if its quotes are malformed."""
    rows = _parsed(texts, delimiter)
    # csv continues an unclosed quote in the next line, which shows as a missing row.
    if len(rows) == len(texts):
        return rows
    alone = [_parsed([text], delimiter) for text in texts]
    return [found[0] if found else [] for found in alone]


def _parsed(texts: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(texts, delimiter=delimiter, strict=True))
    except csv.Error:
        return []
