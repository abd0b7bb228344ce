"""What a filter may look at: the totals of rule filter-4, each divided among its places.

Those for brackets, elements of arrays and texts taken one by one are not here: random messages stay
far below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.keys.filter.oracle.patterns import Pattern
from tests.keys.filter.oracle.reading import Refused

PROGRAMS_MAX, REPLACEMENT, PATTERNS_TOTAL = 4_000, 2_000, 750_000
SEARCHES = ("INSTR", "INSTR_I", "STREQUAL_I")
COPIES: tuple[str, ...] = (
    "TRIM",
    "LTRIM",
    "RTRIM",
    "REVERSE",
    "UPPER",
    "LOWER",
    "CONCAT",
    "REPLACE",
    "MD5",
    "CRC32",
)
COPIES += ("ARRAY_TO_STRING", "REGEXP_REPLACE", "STRPTIME")
COPY_MAX, COPIES_TOTAL, SEARCHES_TOTAL = 8_192, 40_000, 100_000


@dataclass(frozen=True)
class Allowances:
    """Bytes of a text: in a call that copies, in one that searches, and for a pattern."""

    copy: int
    search: int
    pattern: int

    @classmethod
    def of(cls, tree: Any) -> Allowances:
        """What each place of a tree is allowed; raises `Refused` for too large patterns."""
        places = {repr(node): node for node in _nodes(tree)}.values()
        calls = sum(n[0] == "call" and n[1] in COPIES + SEARCHES for n in places) or 1
        patterns = [p for node in places for p in _patterns(node)]
        if sum(pattern.instructions for pattern in set(patterns)) > PROGRAMS_MAX:
            raise Refused("patterns too large")
        work = sum(pattern.instructions for pattern in patterns)
        work += REPLACEMENT * sum(node[:2] == ("call", "REGEXP_REPLACE") for node in places)
        return cls(
            copy=min(COPY_MAX, COPIES_TOTAL // calls),
            search=SEARCHES_TOTAL // calls,
            pattern=PATTERNS_TOTAL // (work or 1),
        )


def _nodes(part: Any) -> Iterator[Any]:
    """Every node of a tree."""
    if isinstance(part, tuple) and part and isinstance(part[0], str):
        yield part
    if isinstance(part, tuple | list):
        for inner in part:
            yield from _nodes(inner)


def _patterns(node: Any) -> list[Pattern]:
    """The patterns that stand in this very node."""
    parts = node[2] if node[0] == "call" else node
    return [part for part in parts if isinstance(part, Pattern)]
