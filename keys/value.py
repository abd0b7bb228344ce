"""JSON text as a value: its members, its items, and the one spelling of what it says."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from keys.number import canonical_number, is_number

NULL = b"null"
EMPTY_OBJECT = b"{}"

Members = dict[str, msgspec.Raw]

_members = msgspec.json.Decoder(Members).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_string = msgspec.json.Decoder(str).decode


def members(text: bytes) -> Members | None:
    """The members of an object, in order, each as its own JSON text; None for other values."""
    return _members(text) if text.lstrip()[:1] == b"{" else None


def items(text: bytes) -> list[msgspec.Raw] | None:
    """The items of an array, each as its own JSON text; None for other values."""
    return _items(text) if text.lstrip()[:1] == b"[" else None


def string(text: bytes) -> str | None:
    """What a JSON string says; None for other values."""
    return _string(text) if text.lstrip()[:1] == b'"' else None


def written(parts: Mapping[str, msgspec.Raw]) -> bytes:
    """Members put together again, their values byte for byte."""
    return msgspec.json.encode(parts)


def placed(fields: Members, target: tuple[str, ...], text: bytes | None) -> Members:
    """The members with a text at its place, or nothing there; objects on the way are made."""
    name, rest = target[0], target[1:]
    if rest:
        before = fields.get(name)
        inner = None if before is None else members(bytes(before))
        if inner is None and text is None:
            return fields
        text = written(placed(inner or {}, rest, text))
    if text is None:
        return {other: value for other, value in fields.items() if other != name}
    return {**fields, name: msgspec.Raw(text)}


def meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one place is the other, or stands inside it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def canonical_value(text: bytes) -> str:
    """The same text for the same value: numbers and strings in one spelling, names sorted."""
    text = text.strip()
    if is_number(text):
        return canonical_number(text)
    if (inner := members(text)) is not None:
        named = sorted((msgspec.json.encode(name).decode(), bytes(inner[name])) for name in inner)
        return "{" + ",".join(f"{name}:{canonical_value(value)}" for name, value in named) + "}"
    if (parts := items(text)) is not None:
        return "[" + ",".join(canonical_value(bytes(part)) for part in parts) + "]"
    if b"\\" in text:
        return msgspec.json.encode(string(text)).decode()
    return text.decode()


def same(one: bytes, other: bytes) -> bool:
    """Whether two JSON texts say the same: 1 and 1.0 do, 1, "1" and true do not."""
    return one == other or canonical_value(one) == canonical_value(other)
