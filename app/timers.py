"""Wall time, waits with a bound, and the pauses of retries."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable


def wall_ms() -> int:
    """Return wall time in milliseconds of the epoch, as messages are stamped."""
    return time.time_ns() // 1_000_000


class Backoff:
    """Pauses of a background task that tries again for ever, and how loud its failures are.

    A pause doubles with each failure in a row, from `first_s` to `most_s`. The jitter keeps
    gateways that lost one Redis from coming back in step; a pause of constant length has none.

    Args:
        first_s: the longest first pause.
        most_s: the longest pause at all; by default `first_s`, for a constant pause.
        chance: draws from a range; for tests.
    """

    def __init__(
        self,
        first_s: float,
        most_s: float | None = None,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._failures = 0

    @property
    def level(self) -> int:
        """The level to log a failure at: only the first in a row is a warning."""
        return logging.DEBUG if self._failures else logging.WARNING

    def succeeded(self) -> None:
        """Reset: the next failure is a first one."""
        self._failures = 0

    def next_s(self) -> float:
        """Count a failure, and return the seconds to pause."""
        # The exponent is bounded because an outage may last for days, and floats end at 2**1024.
        doubled_s = self._first_s * 2.0 ** min(self._failures, 60)
        self._failures += 1
        if self._most_s is None:
            return self._first_s
        return min(doubled_s, self._most_s) * self._chance(0.5, 1.0)

    async def pause(self) -> None:
        """Count a failure, and wait before the next attempt."""
        await asyncio.sleep(self.next_s())


async def wait_until_set(event: asyncio.Event, seconds_max: float) -> bool:
    """Wait until an event is set, and clear it; return False after `seconds_max`."""
    try:
        async with asyncio.timeout(seconds_max):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
