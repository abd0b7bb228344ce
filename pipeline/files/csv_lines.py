"""Lines of CSV as messages: JSON objects, or the line itself with why it is none.

A line break always ends a row, also inside quotes: so a file may be cut at any of them. Arrow
splits the lines whose quotes are in order; others are split as Spark's parser does.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from tidegate.keys.errors import JsonInvalid
from tidegate.keys.lines import is_utf8
from tidegate.pipeline.files.cells import values_of
from tidegate.pipeline.files.form import Form
from tidegate.pipeline.files.objects import SHOWN_MAX, beyond_json, joined, objects_of
from tidegate.pipeline.intervals import Column

SPACE = " \t\r\n"
BYTE_ORDER_MARK = "\ufeff"
NOT_UTF_8 = "not valid UTF-8"


class Rows(NamedTuple):
    """Lines read: `row` is the number of the first, from 0.

    `bodies` are objects, or the lines themselves where they are `refused` or blank.
    """

    row: int
    bodies: pa.Array
    refused: pa.Array


class HeaderInvalidError(ValueError):
    """A file's header has other names, or another order; `number` is its line, from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.reason = reason


def csv_rows(
    lines_of_block: Iterable[pa.Array], form: Form, beside: str, *, has_header: bool
) -> Iterator[Rows]:
    """Yield the rows of a block without its header; `beside` as in `objects_of`.

    Raises:
        HeaderInvalidError: it has another one.
    """
    row = 0
    for lines in lines_of_block:
        given = len(lines)
        if has_header:
            texts = lines.to_pylist()
            first = next((at for at, line in enumerate(texts) if line.strip()), given)
            if first < given:
                _require_header(row + first + 1, texts[first], form)
                has_header = False
            lines = lines.slice(first + 1)
        if len(lines):
            yield Rows(row + given - len(lines), *_read(lines, form, beside))
        row += given


def _require_header(number: int, line: bytes, form: Form) -> None:
    """Compare a header as Spark does: ignore case; an empty name counts by its place."""
    text = line.decode(errors="replace")
    [cells] = csv.reader([text], delimiter=form.delimiter)
    names = [field.name for field in form.fields]
    found = [cell or f"_c{at}" for at, cell in enumerate(cells)]
    if [name.lower() for name in found] != [name.lower() for name in names]:
        wanted = form.delimiter.join(names)[:SHOWN_MAX]
        reason = f"the header is {text[:SHOWN_MAX]}, expected {wanted}"
        raise HeaderInvalidError(number, reason)


def _read(lines: pa.Array, form: Form, beside: str) -> tuple[pa.Array, pa.Array]:
    """Return bodies and reasons."""
    is_text = _is_utf_8(lines)
    texts = lines.filter(pa.array(is_text)).view(pa.string())
    is_blank = np.zeros(len(lines), np.bool_)
    trimmed = pc.ascii_trim(texts, characters=SPACE)
    is_blank[is_text] = np.asarray(pc.equal(pc.binary_length(trimmed), 0))
    given = np.flatnonzero(is_text & ~is_blank)
    cells, is_row = _split(lines.take(pa.array(given)).view(pa.string()), form)
    reasons = np.full(len(lines), None, object)
    reasons[~is_text] = NOT_UTF_8
    names = ", ".join(field.name for field in form.fields)
    reasons[given[~is_row]] = f"no row of the columns {names[:SHOWN_MAX]}"
    rows = given[is_row]
    values = []
    for field, column in zip(form.fields, cells, strict=True):
        found, is_wrong = values_of(str(field.kind), column)
        values.append(found)
        for at in rows[is_wrong].tolist():
            reasons[at] = reasons[at] or f"{field.name[:SHOWN_MAX]} is no {field.kind}"
    beyond = beyond_json(form.fields, values)
    if beyond is not None:
        for at in np.flatnonzero(beyond.is_valid()).tolist():
            reasons[rows[at]] = reasons[rows[at]] or beyond[at].as_py()
    is_object = np.zeros(len(lines), np.bool_)
    is_object[rows] = [reason is None for reason in reasons[rows].tolist()]
    objects = objects_of(form.fields, values, beside).view(pa.binary())
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


# --- splitting; an empty cell is null, quoted or not


def _split(texts: pa.Array, form: Form) -> tuple[list[pa.Array], Column]:
    """Return the cells of each column, of those lines that have as many as there are columns."""
    count = len(form.fields)
    is_plain = _is_plain(texts, form.delimiter)
    if is_plain.all():
        delimiters = _without_quoted(texts)
        is_row = np.asarray(pc.count_substring(delimiters, form.delimiter)) == count - 1
        return _by_arrow(texts.filter(pa.array(is_row)), form), is_row
    # Lines in disorder are few: all of the piece are split by hand, so that they stay in order.
    rows = [cells_of(text, form.delimiter) for text in texts.to_pylist()]
    is_row = np.array([len(row) == count for row in rows], np.bool_)
    whole = [row for row in rows if len(row) == count]
    columns = zip(*whole, strict=True) if whole else [[] for _ in range(count)]
    return [pa.array([cell or None for cell in column], pa.string()) for column in columns], is_row


def _is_plain(texts: pa.Array, delimiter: str) -> Column:
    """Return which lines Arrow splits as Spark does."""
    if len(delimiter.encode()) > 1:
        return np.zeros(len(texts), np.bool_)
    is_odd = pc.match_substring(texts, BYTE_ORDER_MARK)
    has_quotes = pc.match_substring(texts, '"')
    if pc.any(has_quotes).as_py():
        other = re.escape(delimiter)
        cell = rf'(?:"(?:[^"]|"")*"|[^"{other}]*)'
        is_in_order = pc.match_substring_regex(texts, rf"^{cell}(?:{other}{cell})*$")
        is_odd = pc.or_(is_odd, pc.invert(is_in_order))
    return ~np.asarray(is_odd)


def _without_quoted(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(texts, '"')).as_py():
        return texts
    return pc.replace_substring_regex(texts, r'"[^"]*"', "")


def _by_arrow(texts: pa.Array, form: Form) -> list[pa.Array]:
    names = [str(at) for at in range(len(form.fields))]
    if not len(texts):
        return [pa.nulls(0, pa.string()) for _ in names]
    _, _, content = joined(texts, "\n").buffers()
    table = arrow_csv.read_csv(
        pa.BufferReader(content),
        arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=content.size + 1),
        arrow_csv.ParseOptions(delimiter=form.delimiter, ignore_empty_lines=False),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            check_utf8=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def cells_of(text: str, delimiter: str) -> list[str]:
    """Return the cells of a line as Spark's parser splits it, whatever its quotes are."""
    cells, at = [], 0
    while True:
        cell, at = _cell(text, at, delimiter)
        cells.append(cell)
        if at >= len(text):
            return cells
        at += 1  # the delimiter


def _cell(text: str, at: int, delimiter: str) -> tuple[str, int]:
    """Return the cell that begins at a place, and where it ends."""
    if text.startswith('"', at):
        return _quoted_cell(text, at + 1, delimiter)
    end = _end(text, at, delimiter)
    return text[at:end], end


def _end(text: str, at: int, delimiter: str) -> int:
    found = text.find(delimiter, at)
    return len(text) if found < 0 else found


def _quoted_cell(text: str, at: int, delimiter: str) -> tuple[str, int]:
    """Return a cell that begins with a quote just before a place."""
    cell, last = "", len(text)
    if at == last:
        return '"', last
    while at < last:
        if text[at] != '"':
            stop = _end(text, at, '"')
            cell, at = cell + text[at:stop], stop
            continue
        at += 1
        following = text[at : at + 1]
        if following == '"':  # a doubled one is one
            cell, at = cell + '"', at + 1
        elif following in {"", delimiter}:
            return cell, at
        elif following <= " ":
            return _after_space(text, cell, at, delimiter)
        else:  # no quote that ends: the cell is all of it, and its own quotes
            end = _end(text, at, delimiter)
            return f'"{cell}"{text[at:end]}', end
    return cell, last


def _after_space(text: str, cell: str, at: int, delimiter: str) -> tuple[str, int]:
    """Return a cell after whose last quote there is space: it ends, or was none of quotes."""
    start = at
    while at < len(text) and text[at] <= " " and text[at] != delimiter:
        at += 1
    if at == len(text) or text[at] == delimiter:
        return cell, at
    end = _end(text, at + 1, delimiter)
    # A quirk that would tell two versions apart: a quote in second place comes once more.
    is_doubled = end == len(text) and text[at] != '"' and text[at + 1 : at + 2] == '"'
    return f'"{cell}"{text[start:end]}' + '"' * is_doubled, end
