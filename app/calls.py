"""Calls between gateways: a request that one has accepted, and the answer of another."""

from __future__ import annotations

import msgspec

Headers = list[tuple[bytes, bytes]]


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A request: method, path as sent, query, header, body."""

    method: str
    path: bytes
    query: bytes
    headers: Headers
    body: bytes = b""


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """An answer: status, header without what belongs to a connection, body."""

    status: int
    headers: Headers
    body: bytes
