"""The speed of a replay: `1000` messages a second, `500KB` a second, or `2X` the recorded speed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidegate.keys.errors import TextInvalid

_RATE = re.compile(
    r"(?P<count>[0-9]{1,9})(?P<unit>KB|MB|GB)?|(?P<times>[0-9]{1,6}|[0-9]{0,6}\.[0-9]{1,3})X",
    re.IGNORECASE | re.ASCII,
)
_NUMBER = re.compile(r"[0-9]{0,9}(?:\.[0-9]{1,3})?", re.ASCII)
# Decimal units: a rate is compared with networks, which use them.
_BYTES = {"KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Rate:
    """One of the first three is set. `max_gap_ns` bounds a recorded pause."""

    messages_per_s: int | None = None
    bytes_per_s: int | None = None
    times: float | None = None
    max_gap_ns: int | None = None


def parse_rate(text: str, position: int = 0) -> Rate:
    """Parse AMPS's three forms, units in any case: messages a second, bytes a second, or `.5X`.

    Args:
        text: the rate and nothing else.
        position: the offset of this text in the text that was sent.

    Raises:
        TextInvalid: anything else, at the first wrong character; or a rate of 0.
    """
    found = _RATE.fullmatch(text)
    if found is None:
        number = _NUMBER.match(text)
        assert number is not None, "each part of it may be missing"
        raise TextInvalid(
            "expected messages a second, bytes such as 500KB, or a speed such as 2X",
            position + number.end(),
        )
    if found["times"] is not None:
        rate = Rate(times=float(found["times"]))
    elif found["unit"] is not None:
        rate = Rate(bytes_per_s=int(found["count"]) * _BYTES[found["unit"].upper()])
    else:
        rate = Rate(messages_per_s=int(found["count"]))
    if not (rate.times or rate.bytes_per_s or rate.messages_per_s):
        raise TextInvalid("a rate is above 0", position)
    return rate


def rate_text(rate: Rate) -> str:
    """Return the canonical spelling, without the gap."""
    if rate.times is not None:
        return f"{rate.times!r}".removesuffix(".0") + "X"
    if rate.bytes_per_s is not None:
        unit = next(unit for unit in ("GB", "MB", "KB") if rate.bytes_per_s % _BYTES[unit] == 0)
        return f"{rate.bytes_per_s // _BYTES[unit]}{unit}"
    return str(rate.messages_per_s)
