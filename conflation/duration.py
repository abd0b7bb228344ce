"""Durations as users write them: an integer and a unit, as in AMPS's time specifiers."""

from __future__ import annotations

import re

Instant = int
"""A moment of the monotonic clock, integer nanoseconds."""

MILLISECOND = 1_000_000
SECOND = 1_000 * MILLISECOND
DAY = 86_400 * SECOND

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": DAY,
    "w": 7 * DAY,
}
_DURATION = re.compile(r"([0-9]{1,20})(ns|us|ms|s|m|h|d|w)", re.IGNORECASE | re.ASCII)


def parse_duration(text: str) -> int:
    """`250ms` to nanoseconds; units ns us ms s m h d w in any case.

    Raises:
        ValueError: a sign, a fraction, a missing unit, anything else.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("expected an integer and a unit (ns us ms s m h d w), such as 500ms")
    return int(found[1]) * _UNITS[found[2].lower()]


def duration_text(duration_ns: int) -> str:
    """The shortest exact spelling: 1_500_000_000 is `1500ms`."""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        if duration_ns and duration_ns % _UNITS[unit] == 0:
            return f"{duration_ns // _UNITS[unit]}{unit}"
    return f"{duration_ns}ns"
