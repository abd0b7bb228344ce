"""Durations: an integer and a unit, as in AMPS's time specifiers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from tidegate.keys.errors import TextInvalid

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
DURATION_MAX = 36_500 * DAY
"""No duration is longer: whatever is accepted has a spelling that is accepted again."""

# Without re.ASCII, IGNORECASE takes U+017F for an `s`.
_DURATION = re.compile(r"([0-9]{1,20})(ns|us|ms|s|m|h|d|w)", re.IGNORECASE | re.ASCII)
_DIGITS = re.compile(r"[0-9]{0,20}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in whole nanoseconds; `seconds` is for asyncio, `ns` for the engine."""

    ns: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text as `parse_duration` does.

        Raises:
            TextInvalid: no duration.
        """
        return cls(parse_duration(text))

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return self.ns / SECOND

    @property
    def ms(self) -> int:
        """The span in whole milliseconds, rounded down."""
        return self.ns // MILLISECOND

    def __str__(self) -> str:
        return duration_text(self.ns)


def parse_duration(text: str, position: int = 0) -> int:
    """Parse `250ms` to nanoseconds; units ns us ms s m h d w in any case.

    Args:
        text: the duration and nothing else.
        position: the offset of this text in the text that was sent.

    Raises:
        TextInvalid: a sign, a fraction, a missing unit, more than `DURATION_MAX`, anything else;
            at the first character that does not fit.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        digits = _DIGITS.match(text)
        raise TextInvalid(
            "expected an integer and a unit (ns us ms s m h d w), such as 500ms",
            position + (digits.end() if digits else 0),
        )
    duration_ns = int(found[1]) * _UNITS[found[2].lower()]
    if duration_ns > DURATION_MAX:
        raise TextInvalid(f"expected at most {duration_text(DURATION_MAX)}", position)
    return duration_ns


def parse_interval(text: str, position: int = 0) -> int:
    """Parse a duration from 1 ms to 1 d, the bounds of every interval, to nanoseconds.

    Raises:
        TextInvalid: no duration, or one out of bounds.
    """
    interval_ns = parse_duration(text, position)
    # Refused by name: out of bounds would not say that the unit is at fault.
    if text.lower().endswith("w"):
        raise TextInvalid(
            "weeks are for a topic's expiration and history; here from 1ms to 1d", position
        )
    if not MILLISECOND <= interval_ns <= DAY:
        raise TextInvalid("a duration is from 1ms to 1d", position)
    return interval_ns


def whole_ms(duration_ns: int) -> int:
    """Return whole milliseconds, rounded up: an interval is never shorter than asked for."""
    return -(-duration_ns // MILLISECOND)


def duration_text(duration_ns: int) -> str:
    """Return the shortest exact spelling: 1_500_000_000 is `1500ms`."""
    # Weeks are never written: an interval may not have them.
    for unit in ("d", "h", "m", "s", "ms", "us"):
        if duration_ns and duration_ns % _UNITS[unit] == 0:
            return f"{duration_ns // _UNITS[unit]}{unit}"
    return f"{duration_ns}ns"
