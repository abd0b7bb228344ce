"""The naive result: one pass over all lines, the newest of each key in a dict."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

Identity = tuple[tuple[str, object], ...]


def identity(line: bytes, *names: str) -> Identity | None:
    """What makes a record one with another: type and value of its fields; None for no record."""
    try:
        record = json.loads(line, parse_int=Decimal, parse_float=Decimal, parse_constant=refuse)
    except ValueError:
        return None
    fields = [record.get(name) if isinstance(record, dict) else None for name in names]
    if not all(isinstance(found, str | Decimal | bool) for found in fields):
        return None
    if any(isinstance(found, Decimal) and abs(found) >= 2**64 for found in fields):
        return None
    return tuple((type(found).__name__, found) for found in fields)


def newest_by_key(lines: Iterable[bytes], *names: str) -> dict[Identity, Any]:
    """The last line's value of each key."""
    newest: dict[Identity, Any] = {}
    for line in lines:
        record = identity(line, *names)
        if record is not None:
            newest[record] = json.loads(line)
    return newest


def refuse(constant: str) -> None:
    raise ValueError(constant)
