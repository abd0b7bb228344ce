"""Messages out of files: NDJSON or CSV, plain or gzipped, or as they come on standard input."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple, Protocol, cast

import msgspec

from tidegate.app.cli.terminal import UsageInvalid

STDIN = "-"
READ_BYTES = 64 * 1024
JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


class Line(NamedTuple):
    """One message as JSON text, and the line of its file on which it stands, from 1."""

    number: int
    text: bytes


class CsvRows(Protocol):
    """What `csv.reader` gives back."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


Lines = Iterator[Line | None]
"""None says that nothing more is there at the moment, so what came should not wait."""


def read_lines(file: str) -> Lines:
    """The messages of a file, of `-` those of standard input; blank lines are passed over.

    Raises:
        UsageInvalid: the file cannot be read, or is not what its name says.
    """
    name = "standard input" if file == STDIN else file
    try:
        if file == STDIN:
            yield from _arriving_lines(sys.stdin.buffer)
            return
        with _opened(file) as raw:
            yield from csv_lines(raw) if _is_csv(file) else ndjson_lines(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UsageInvalid(f"{name} is not a whole gzip file") from None
    except UnicodeDecodeError:
        raise UsageInvalid(f"{name} is not UTF-8") from None
    except csv.Error as error:
        raise UsageInvalid(f"{name} is not valid CSV: {error}") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageInvalid(f"cannot read {name}: {error.strerror or error}") from None


def ndjson_lines(raw: IO[bytes]) -> Lines:
    """Lines as they stand; whether they are JSON is for the gateway to say."""
    for number, line in enumerate(raw, start=1):
        text = line.strip()
        if text:
            yield Line(number, text)


def csv_lines(raw: IO[bytes]) -> Lines:
    """Objects with the header's names; numbers are numbers, empty cells are left out.

    A file of blank lines holds no message, so nobody asks for its header.

    Raises:
        UsageInvalid: a header that names nothing, or a name twice; a row longer or shorter.
    """
    text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
    try:
        yield from _objects(csv.reader(text, strict=True))
    finally:
        text.detach()  # closing is for whoever opened it


def _objects(rows: CsvRows) -> Lines:
    header = next((row for row in rows if row), None)
    if header is None:
        return
    if not all(header) or len(set(header)) != len(header):
        raise UsageInvalid("the first row of the CSV must name each column, and differently")
    names = [msgspec.json.encode(name) + b":" for name in header]
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise UsageInvalid(
                f"line {rows.line_num} of the CSV has {len(row)} cells, its header {len(header)}"
            )
        fields = [name + _cell(cell) for name, cell in zip(names, row, strict=True) if cell]
        yield Line(rows.line_num, b"{" + b",".join(fields) + b"}")


def _cell(text: str) -> bytes:
    """A number keeps its spelling; everything else is a string."""
    return text.encode() if JSON_NUMBER.fullmatch(text) else msgspec.json.encode(text)


def _arriving_lines(raw: IO[bytes]) -> Lines:
    """Lines as soon as they are whole, with a None after each piece that arrived."""
    number, rest = 0, b""
    while piece := cast("io.BufferedReader", raw).read1(READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number += 1
            if text := line.strip():
                yield Line(number, text)
        yield None
    if text := rest.strip():
        yield Line(number + 1, text)


@contextlib.contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    with open(file, "rb") as raw:  # noqa: PTH123 - the name is the user's, `Path` would change it
        if not file.lower().endswith(".gz"):
            yield raw
            return
        with gzip.open(raw) as unpacked:
            yield cast("IO[bytes]", unpacked)


def _is_csv(file: str) -> bool:
    return file.lower().removesuffix(".gz").endswith(".csv")
