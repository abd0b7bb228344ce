"""Answers of routes: JSON documents, and long bodies in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from starlette.responses import Response

Headers = Mapping[str, str]


def json_answer(document: object, status: int = 200, headers: Headers | None = None) -> Response:
    """Return a document as a response."""
    # FastAPI would walk through the document again before it encodes it.
    return Response(msgspec.json.encode(document), status, headers, "application/json")


PIECE_BYTES = 128 << 10
"""Of a long body: the next one is written once the peer has taken this, so that none waits whole
for a peer that takes nothing."""


def body_pieces(body: bytes) -> Iterator[bytes]:
    """Return a body in pieces."""
    return (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
