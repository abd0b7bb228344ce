"""An edge node of Sparkplug B, whose payloads are written byte by byte from the specification."""

from __future__ import annotations

import struct
from typing import Any

INT8, INT32, INT64, UINT64, FLOAT, DOUBLE = 1, 3, 4, 8, 9, 10
BOOLEAN, STRING, DATETIME, DATASET, BYTES, TEMPLATE = 11, 12, 13, 16, 17, 19
AT_MS = 1_700_000_000_000


def varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def whole(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def text(field: int, content: str | bytes) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def float32(field: int, number: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", number)


def float64(field: int, number: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", number)


def value(datatype: int, found: Any) -> bytes:
    """The field of a value: of 32-bit numbers 10, of 64-bit ones 11, and so on."""
    match datatype:
        case _ if found is None:
            return whole(7, 1)
        case 1 | 2 | 3 | 5 | 6 | 7:
            return whole(10, found % 2**32)
        case 4 | 8 | 13:
            return whole(11, found % 2**64)
        case 9:
            return float32(12, found)
        case 10:
            return float64(13, found)
        case 11:
            return whole(14, found)
        case 12 | 14 | 15:
            return text(15, found)
        case _ if datatype in {17, 18} or datatype >= 22:  # bytes, files, arrays
            return text(16, found)
        case 16:
            return text(17, b"")
        case 19:
            return text(18, b"")
    raise ValueError(datatype)


def metric(
    name: str = "",
    datatype: int = 0,
    found: Any = None,
    *,
    alias: int | None = None,
    told: bool = True,
    quality: int | None = None,
    historical: bool = False,
    at_ms: int = AT_MS,
) -> bytes:
    """A metric; `told` says its type, as births do."""
    content = text(1, name) if name else b""
    if alias is not None:
        content += whole(2, alias)
    content += whole(3, at_ms)
    if told:
        content += whole(4, datatype)
    if historical:
        content += whole(5, 1)
    if quality is not None:
        content += text(9, text(1, "Quality") + text(2, whole(1, INT32) + whole(3, quality)))
    return content + value(datatype, found)


def payload(*metrics: bytes, seq: int | None = None) -> bytes:
    """A payload with metrics."""
    content = whole(1, AT_MS) + b"".join(text(2, each) for each in metrics)
    return content if seq is None else content + whole(3, seq)


def topic(kind: str, device: str = "") -> str:
    """The topic of a message of this node."""
    return f"spBv1.0/plant/{kind}/press" + (f"/{device}" if device else "")
