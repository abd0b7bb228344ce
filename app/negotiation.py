"""Content negotiation: the weights in Accept and Accept-Encoding (RFC 9110, 12.4.2)."""

from __future__ import annotations

import re
from typing import Final

_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]*)?|1(?:\.0*)?)")


def weights(header: str) -> dict[str, float]:
    """Return each name in a header, in lower case, with its weight from 0 to 1."""
    found: dict[str, float] = {}
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name:
            found[name] = min(map(_weight, parameters), default=1.0)
    return found


def _weight(parameter: str) -> float:
    """Return a weight; any other parameter changes nothing."""
    found = _WEIGHT.fullmatch(parameter)
    return 1.0 if found is None else float(found[1])
