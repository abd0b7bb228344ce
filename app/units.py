"""Durations and sizes as people write them in settings: `10s`, `8MiB`."""

import re
from dataclasses import dataclass
from typing import Self

from conflation.duration import MILLISECOND, SECOND, duration_text, parse_duration

BYTES_PER_UNIT = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
SIZE_UNITS_SHOWN = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

# re.ASCII: an Arabic or full-width digit is no digit here. Fifteen digits stay inside 64 bits.
_SIZE = re.compile(r"([0-9]{1,15})([kmg]?i?b)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in whole nanoseconds; `seconds` is for asyncio, `ns` for the engine."""

    ns: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an integer with a unit (`ns us ms s m h d w`, in either case).

        Raises:
            ValueError: what was expected, in one sentence that does not repeat the input.
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


def parse_size(text: str) -> int:
    """Read a number of bytes with a unit (`B KB MB GB KiB MiB GiB`, in either case).

    Raises:
        ValueError: what was expected, in one sentence that does not repeat the input.
    """
    found = _SIZE.fullmatch(text)
    if found is None or found[2].lower() not in BYTES_PER_UNIT:
        raise ValueError("expected an integer and a unit (B KB MB GB KiB MiB GiB), such as 8MiB")
    return int(found[1]) * BYTES_PER_UNIT[found[2].lower()]


def size_text(size_bytes: int) -> str:
    """Write a number of bytes with the largest binary unit that loses nothing."""
    for unit, unit_bytes in SIZE_UNITS_SHOWN:
        if size_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return f"{size_bytes}B"
