"""Messages read from files, NDJSON or CSV, plain or gzipped, or from standard input."""

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
    """One message as JSON text, and its line in the file, from 1."""

    number: int
    text: bytes


class CsvRows(Protocol):
    """The type of `csv.reader`, which the standard library does not name."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


Lines = Iterator[Line | None]
"""None marks a pause in the input: send what has come so far."""


def read_lines(file: str) -> Lines:
    """Yield the messages of a file, or of standard input for `-`; blank lines are skipped.

    Raises:
        UsageInvalid: the file cannot be read, or its content does not fit its name.
    """
    name = "standard input" if file == STDIN else file
    try:
        if file == STDIN:
            yield from _arriving_lines(sys.stdin.buffer)
            return
        with _opened(file) as raw:
            yield from csv_lines(raw) if _is_csv(file) else ndjson_lines(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UsageInvalid(f"{name} is not a complete gzip file") from None
    except UnicodeDecodeError:
        raise UsageInvalid(f"{name} is not UTF-8") from None
    except csv.Error as error:
        raise UsageInvalid(f"{name} is not valid CSV: {error}") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageInvalid(f"cannot read {name}: {error.strerror or error}") from None


def ndjson_lines(raw: IO[bytes]) -> Lines:
    """Yield lines as they stand; the gateway checks that they are JSON."""
    for number, line in enumerate(raw, start=1):
        text = line.strip()
        if text:
            yield Line(number, text)


def csv_lines(raw: IO[bytes]) -> Lines:
    """Yield objects with the header's names; cells that are numbers become numbers.

    Empty cells are left out. A file of blank lines needs no header.

    Raises:
        UsageInvalid: an empty or repeated name in the header; a row longer or shorter than it.
    """
    # Spreadsheets begin a file with a byte order mark; `newline=""` leaves quoted line ends to csv.
    text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
    try:
        yield from _objects(csv.reader(text, strict=True))
    finally:
        text.detach()  # the caller closes the file


def _objects(rows: CsvRows) -> Lines:
    header = next((row for row in rows if row), None)
    if header is None:
        return
    if not all(header) or len(set(header)) != len(header):
        raise UsageInvalid("the first row of the CSV must give each column a name of its own")
    # Encoded once and not for each row.
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
    """Return a cell as JSON: a number keeps its spelling, everything else is a string."""
    return text.encode() if JSON_NUMBER.fullmatch(text) else msgspec.json.encode(text)


def _arriving_lines(raw: IO[bytes]) -> Lines:
    """Yield lines as soon as they are whole, and None after each piece that arrived."""
    number, rest = 0, b""
    while piece := cast("io.BufferedReader", raw).read1(READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number += 1
            if text := line.strip():
                yield Line(number, text)
        yield None  # what has arrived is published before the next read blocks
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
