"""Durations and sizes as people write them: `10s`, `8MiB`."""

import re
from dataclasses import dataclass

NS_PER_UNIT = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}
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

# re.ASCII: an Arabic or full-width digit is no digit here. Eighteen digits stay inside 64 bits.
_QUANTITY = re.compile(r"([0-9]{1,18})([a-z]+)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in whole nanoseconds; `seconds` is for asyncio, `ns` for everything else."""

    ns: int

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return self.ns / NS_PER_UNIT["s"]

    @property
    def ms(self) -> int:
        """The span in whole milliseconds, rounded down."""
        return self.ns // NS_PER_UNIT["ms"]

    def __str__(self) -> str:
        for unit in ("w", "d", "h", "m", "s", "ms", "us"):
            if self.ns and self.ns % NS_PER_UNIT[unit] == 0:
                return f"{self.ns // NS_PER_UNIT[unit]}{unit}"
        return f"{self.ns}ns"


def parse_duration(text: str) -> Duration:
    """Read an integer with a unit (`ns us ms s m h d w`, in either case).

    Raises:
        ValueError: what was expected, in one sentence that does not repeat the input.
    """
    return Duration(_quantity(text, NS_PER_UNIT, 'a duration such as "10s" or "500ms"'))


def parse_size(text: str) -> int:
    """Read a number of bytes with a unit (`B KB MB GB KiB MiB GiB`, in either case).

    Raises:
        ValueError: what was expected, in one sentence that does not repeat the input.
    """
    return _quantity(text, BYTES_PER_UNIT, 'a size such as "8MiB" or "500KB"')


def size_text(size_bytes: int) -> str:
    """Write a number of bytes with the largest binary unit that loses nothing."""
    for unit, unit_bytes in SIZE_UNITS_SHOWN:
        if size_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return f"{size_bytes}B"


def _quantity(text: str, units: dict[str, int], expected: str) -> int:
    match = _QUANTITY.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"expected {expected}: an integer and a unit, {' '.join(units)}")
    return int(match[1]) * factor
