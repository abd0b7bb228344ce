"""Durations as the options language has them: `500ms`, `2S`."""

from __future__ import annotations

import re

DURATION = re.compile(r"([0-9]{1,18})(ns|us|ms|s|m|h|d|w)", re.IGNORECASE)
UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}


def duration_ms(text: str) -> int | None:
    """A duration such as `500ms` or `2S`, rounded up to whole milliseconds, as Spark counts.

    None if it is not from 1 ms to 1 d.
    """
    found = DURATION.fullmatch(text)
    duration_ns = int(found[1]) * UNIT_NS[found[2].lower()] if found else 0
    if not UNIT_NS["ms"] <= duration_ns <= UNIT_NS["d"]:
        return None
    return -(-duration_ns // UNIT_NS["ms"])
