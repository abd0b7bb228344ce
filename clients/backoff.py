"""How long to wait before the next attempt, so that many clients do not come back as one."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_S = 0.25
MOST_S = 30.0

Chance = Callable[[float, float], float]


class Backoff:
    """Full jitter: each wait is anything up to a bound that doubles with every failure.

    Args:
        first_s: the bound of the first wait.
        most_s: the bound that no wait's own jitter exceeds.
        chance: draws from a range; for tests.
    """

    def __init__(
        self, first_s: float = FIRST_S, most_s: float = MOST_S, chance: Chance = random.uniform
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._failures = 0

    def succeeded(self) -> None:
        """The next wait is a first one again."""
        self._failures = 0

    def wait_s(self, asked_s: float = 0.0) -> float:
        """Seconds to wait now: what the gateway asked for (`retry:`) and the jitter on top."""
        bound_s = min(self._most_s, self._first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return asked_s + self._chance(0.0, bound_s)
