"""Records as bytes of a format, a piece at a time, and the two formats of plain JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from tidegate.app.http.answers import body_pieces
from tidegate.app.streams.scheduler import in_turns
from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import Steps
from tidegate.keys.jsontext import Members, members

ROWS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 256 << 10
CELLS_AT_ONCE: Final = 10_000
"""Values of fields that a step works on: up to 3 ms."""
VALUE: Final = "value"
"""The field of a record that is no object: its value."""

Text = Callable[[Frame], bytes]
"""Returns a row as JSON text: its value, or its envelope."""

_objects = msgspec.json.Decoder(list[Members]).decode


class RecordEncoder(Protocol):
    """Encodes records, each a JSON text, as one body.

    Attributes:
        content_type: of the body.
    """

    content_type: str

    def begin(self) -> bytes:
        """Return what the body begins with."""

    def piece(self, records: Sequence[bytes]) -> Steps[bytes]:
        """Encode the next records, in steps; some may be held back for the next piece."""

    def end(self) -> bytes:
        """Return what the body ends with."""


class NdjsonEncoder:
    """A line of JSON for each record."""

    content_type = "application/x-ndjson"

    def begin(self) -> bytes:
        """Return nothing: there is no header."""
        return b""

    def piece(self, records: Sequence[bytes]) -> Steps[bytes]:
        """Return a line for each record, in one step."""
        yield from ()
        return b"".join([record + b"\n" for record in records])

    def end(self) -> bytes:
        """Return nothing: the last line has its end."""
        return b""


class JsonEncoder:
    """A JSON array of the records."""

    content_type = "application/json"

    def __init__(self) -> None:
        self._lead = b"["

    def begin(self) -> bytes:
        """Return nothing: the bracket comes with the first record."""
        return b""

    def piece(self, records: Sequence[bytes]) -> Steps[bytes]:
        """Return the next items, in one step."""
        yield from ()
        lead, self._lead = self._lead, b","
        return lead + b",".join(records)

    def end(self) -> bytes:
        """Return the end of the array, or an empty one."""
        return b"[]" if self._lead == b"[" else b"]"


async def encoded(
    encoder: RecordEncoder, rows: Sequence[Frame], text: Text
) -> AsyncIterator[bytes]:
    """Yield rows as a body, some hundred at a time; other work of the loop runs in between.

    A write for each row would cost more than the row. A plain generator would run in threads of the
    framework's, each with memory of its own, and the loop would be blocked until all are made.
    """
    for part in body_pieces(encoder.begin()):
        yield part
    for piece in pieces(rows):
        for part in body_pieces(await in_turns(_encode(encoder, piece, text))):
            yield part
    for part in body_pieces(encoder.end()):
        yield part


def pieces(rows: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    """Yield rows in their order, in pieces bounded by rows and by bytes; at least one row each."""
    start = 0
    while start < len(rows):
        piece = rows[start : start + ROWS_AT_ONCE]
        room, end = BYTES_AT_ONCE, 0
        for frame in piece:
            room -= len(frame.payload)
            if room < 0 and end:
                break
            end += 1
        yield piece[:end]
        start += end


def members_of(records: Sequence[bytes]) -> list[Members]:
    """Return the members of each record, each as JSON text; one that is no object has `value`."""
    try:
        return _objects(b"[" + b",".join(records) + b"]")
    except msgspec.ValidationError:
        found = map(members, records)
        return [
            {VALUE: msgspec.Raw(record.strip())} if each is None else each
            for each, record in zip(found, records, strict=True)
        ]


def _encode(encoder: RecordEncoder, piece: Sequence[Frame], text: Text) -> Steps[bytes]:
    yield  # to all else, before each piece
    return (yield from encoder.piece([text(frame) for frame in piece]))
