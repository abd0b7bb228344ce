"""The speed of a replay as users write it: `10x` the recorded one, `1000` messages, `500KB`.

As the option `rate` of a subscription has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_RATE = re.compile(
    r"(?P<count>[0-9]{1,9})(?P<unit>KB|MB|GB)?|(?P<times>[0-9]{0,6}(?:\.[0-9]{1,3})?)X",
    re.IGNORECASE | re.ASCII,
).fullmatch
_BYTES = {"KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Rate:
    """One of the three is given: messages or bytes a second, or times the recorded speed."""

    messages_per_s: int | None = None
    bytes_per_s: int | None = None
    times: float | None = None


def parse_rate(text: str) -> Rate | None:
    """A rate, units in any case; None if it is none, or a speed of nothing."""
    found = _RATE(text)
    if found is None or found["times"] == "":
        return None
    if found["times"] is not None:
        rate = Rate(times=float(found["times"]))
    elif found["unit"] is not None:
        rate = Rate(bytes_per_s=int(found["count"]) * _BYTES[found["unit"].upper()])
    else:
        rate = Rate(messages_per_s=int(found["count"]))
    return rate if rate.times or rate.bytes_per_s or rate.messages_per_s else None
