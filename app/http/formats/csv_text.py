"""CSV (RFC 4180) that no spreadsheet runs as formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.app.http.formats.columns import cells_of
from tidegate.app.http.formats.records import CELLS_AT_ONCE, members_of
from tidegate.conflation.steps import Steps
from tidegate.keys.jsontext import NULL

# https://owasp.org/www-community/attacks/CSV_Injection
FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What begins a formula; the last four are the full-width forms of the first."""
QUOTE: Final = "'"
"""Makes a text inert. One that begins with it gets another, so taking one away gives it back."""
_NOT_PLAIN: Final = (b"\\", b"{", b"[", b"null", b'"=', b'"+', b'"-', b'"@', b"\"'", b'"\xef')
"""A JSON value without any of them is a cell as it is: a number, a word, or a text in quotes."""
_TEXT: Final = b'"'
LINE_END: Final = b"\r\n"


class CsvEncoder:
    """A header with the names of the fields, and a line for each record.

    Texts are quoted, numbers and booleans are as published, null and a missing field are empty.
    Objects and arrays are their JSON text.
    """

    content_type = "text/csv; charset=utf-8; header=present"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def begin(self) -> bytes:
        """Return the header."""
        return b",".join(map(_text_cell, self._names)) + LINE_END if self._names else b""

    def piece(self, records: Sequence[bytes]) -> Steps[bytes]:
        """Return a line for each record; wide ones take several steps."""
        found = members_of(records)
        columns: list[list[bytes]] = []
        cells = 0
        for name in self._names:
            columns.append(_cells(cells_of(found, name)))
            cells += len(found)
            if cells > CELLS_AT_ONCE:
                yield
                cells = 0
        lines = map(b",".join, zip(*columns, strict=True))
        # Readers skip an empty line, of one column without a value, and with it the record.
        return b"".join([(line or b'""') + LINE_END for line in lines])

    def end(self) -> bytes:
        """Return nothing: the last line has its end."""
        return b""


def _cells(values: Sequence[msgspec.Raw]) -> list[bytes]:
    """Return the values of a field, each a JSON text, as cells."""
    joined = b",".join(values)
    # All at once: mostly, each text is the cell already.
    if not any(map(joined.__contains__, _NOT_PLAIN)):
        return list(map(bytes, values))
    return list(map(_cell, map(bytes, values)))


def _cell(text: bytes) -> bytes:
    """Return a JSON value as a cell."""
    if text.startswith(_TEXT):
        return _text_cell(msgspec.json.decode(text, type=str))
    if text.startswith((b"{", b"[")):
        return _quoted(text)
    return b"" if text == NULL else text


def _text_cell(text: str) -> bytes:
    lead = QUOTE if text.startswith((QUOTE, *FORMULAS)) else ""
    return _quoted((lead + text).encode())


def _quoted(text: bytes) -> bytes:
    return b'"' + text.replace(b'"', b'""') + b'"'
