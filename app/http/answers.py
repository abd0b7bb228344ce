"""Answers of routes: JSON documents, and rows in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from starlette.responses import Response

ROWS_AT_ONCE = 500

Headers = Mapping[str, str]
Row = TypeVar("Row")


def json_answer(document: object, status: int = 200, headers: Headers | None = None) -> Response:
    """Return a document as a response."""
    # FastAPI would walk through the document again before it encodes it.
    return Response(msgspec.json.encode(document), status, headers, "application/json")


PIECE_BYTES = 64 << 10
"""Of a long body: the next one is written once the peer has taken this, so that none waits whole
for a peer that takes nothing."""


def body_pieces(body: bytes) -> Iterator[bytes]:
    """Return a body in pieces."""
    return (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))


async def in_pieces(
    rows: Sequence[Row], text: Callable[[Sequence[Row]], bytes]
) -> AsyncIterator[bytes]:
    """Yield the text of some hundred rows at a time, in turn with all else that the loop does.

    A write for each row would cost more than the row. A plain generator would run in threads of the
    framework's, each with memory of its own, and the loop would wait for their turn to end.
    """
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield text(rows[start : start + ROWS_AT_ONCE])
        await asyncio.sleep(0)
