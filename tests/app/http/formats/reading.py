"""Reads each format back to records, to be compared with what was published."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidegate.app.http.formats.arrow_stream import ArrowEncoder
from tidegate.app.http.formats.columns import columns_in, names_in
from tidegate.app.http.formats.csv_text import CsvEncoder
from tidegate.app.http.formats.records import (
    JsonEncoder,
    NdjsonEncoder,
    RecordEncoder,
    pieces,
)
from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import finished

Record = dict[str, Any]

_CELL: Final = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)')
FORMATS: Final = ("ndjson", "json", "csv", "arrow")


def exact(text: str | bytes) -> Any:
    """JSON with exact numbers; true is not 1."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def frames(texts: Sequence[bytes]) -> list[Frame]:
    """Rows with these payloads."""
    return [Frame(number, text, f"[{number}]") for number, text in enumerate(texts, 1)]


def payload(frame: Frame) -> bytes:
    """The text of a row."""
    return frame.payload


def body_of(form: str, rows: Sequence[Frame]) -> bytes:
    """The whole body in one of `FORMATS`."""
    encoder: RecordEncoder
    match form:
        case "ndjson":
            encoder = NdjsonEncoder()
        case "json":
            encoder = JsonEncoder()
        case "csv":
            encoder = CsvEncoder(finished(names_in(rows, payload, {})))
        case _:
            encoder = ArrowEncoder(finished(columns_in(rows, payload, {})))
    texts = ([payload(frame) for frame in piece] for piece in pieces(rows))
    middle = b"".join(finished(encoder.piece(each)) for each in texts)
    return encoder.begin() + middle + encoder.end()


def read_back(form: str, body: bytes) -> list[Record]:
    """The records of a body; what is null or missing is left out."""
    match form:
        case "ndjson":
            found = [exact(line) for line in body.splitlines()]
        case "json":
            found = exact(body)
        case "csv":
            return list(_of_csv(body.decode()))
        case _:
            return list(_of_arrow(pa.ipc.open_stream(body).read_all()))
    objects = (each if isinstance(each, dict) else {"value": each} for each in found)
    return [{name: value for name, value in each.items() if value is not None} for each in objects]


def csv_lines(text: str) -> Iterator[list[tuple[str, bool]]]:
    """The cells of each line, and whether they are quoted."""
    line, at = [], 0
    while at < len(text):
        cell = _CELL.match(text, at)
        assert cell is not None, text[at : at + 50]
        is_quoted = cell[1] is not None
        line.append((cell[1].replace('""', '"') if is_quoted else cell[2], is_quoted))
        at = cell.end()
        if cell[3] != ",":
            yield line
            line = []


def _of_csv(text: str) -> Iterator[Record]:
    lines = csv_lines(text)
    names = [name.removeprefix("'") for name, _ in next(lines, [])]
    for line in lines:
        assert len(line) == len(names)
        cells = zip(names, line, strict=True)
        yield {
            name: CsvText(cell.removeprefix("'")) if is_quoted else exact(cell)
            for name, (cell, is_quoted) in cells
            if cell or is_quoted
        }


class CsvText(str):
    """A quoted cell: a text, or the JSON of an object or an array."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, dict | list):
            return bool(exact(self) == other)
        return str(self) == str(other) if isinstance(other, str) else NotImplemented

    __hash__ = str.__hash__


def _of_arrow(table: pa.Table) -> Iterator[Record]:
    texts = {field.name for field in table.schema if field.metadata}
    for row in table.to_pylist():
        yield {
            name: exact(value) if name in texts else _number_or_other(value)
            for name, value in row.items()
            if value is not None
        }


def _number_or_other(value: Any) -> Any:
    """A value as `exact` reads it; a double is its shortest text."""
    if isinstance(value, bool | str):
        return value
    return Decimal(repr(value) if isinstance(value, float) else value)
