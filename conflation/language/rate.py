"""The speed of a replay as users write it: `1000` messages, `500KB`, or `2X` the recorded speed."""

from __future__ import annotations

import re

from conflation.subscription import Rate

_RATE = re.compile(
    r"(?P<count>[0-9]{1,9})(?P<unit>KB|MB|GB)?|(?P<times>[0-9]{0,6}(?:\.[0-9]{1,3})?)X",
    re.IGNORECASE | re.ASCII,
).fullmatch
_BYTES = {"KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


def parse_rate(text: str) -> Rate:
    """AMPS's three forms, units in any case: messages a second, bytes a second, or `.5X`.

    Raises:
        ValueError: anything else, or a speed of nothing.
    """
    found = _RATE(text)
    if found is None or found["times"] == "":
        raise ValueError("expected messages a second, bytes such as 500KB, or a speed such as 2X")
    if found["times"] is not None:
        rate = Rate(times=float(found["times"]))
    elif found["unit"] is not None:
        rate = Rate(bytes_per_s=int(found["count"]) * _BYTES[found["unit"].upper()])
    else:
        rate = Rate(messages_per_s=int(found["count"]))
    if not (rate.times or rate.bytes_per_s or rate.messages_per_s):
        raise ValueError("a rate is above 0")
    return rate


def rate_text(rate: Rate) -> str:
    """The canonical spelling, without the gap."""
    if rate.times is not None:
        return f"{rate.times!r}".removesuffix(".0") + "X"
    if rate.bytes_per_s is not None:
        unit = next(unit for unit in ("GB", "MB", "KB") if rate.bytes_per_s % _BYTES[unit] == 0)
        return f"{rate.bytes_per_s // _BYTES[unit]}{unit}"
    return str(rate.messages_per_s)
