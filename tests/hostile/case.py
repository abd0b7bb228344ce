"""A hostile request, and the codes of which one must refuse it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    """A request, and the codes of which one must refuse it."""

    name: str
    raw: bytes
    codes: frozenset[str]
    pointer: str | None = None
    """Where the problem must point to, or into."""


def hostile(name: str, raw: bytes, *codes: str, pointer: str | None = None) -> Hostile:
    """A case, in one line."""
    return Hostile(name, raw, frozenset(codes), pointer)
