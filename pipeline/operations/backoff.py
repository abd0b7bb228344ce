"""How long to wait before a stream that failed is started again."""

from __future__ import annotations

PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 60.0


def pause_s(failures: int, chance: float) -> float:
    """Seconds to wait after so many failures without a batch between them: 1, 2, 4 … 60.

    Up to half as much comes on top, by a `chance` from 0 to 1: streams that have failed at one
    moment are not started again at another.
    """
    doublings = min(failures - 1, 6)  # the seventh would be above the most anyway
    return min(PAUSE_FIRST_S * 2.0**doublings, PAUSE_MAX_S) * (1 + chance / 2)
