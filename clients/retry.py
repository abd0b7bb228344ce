"""Asking again what failed and may go well in a moment: after which pauses, and for how long."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 10.0
PAUSE_FIRST_S = 0.25
PAUSE_MOST_S = 2.0
RETURN_MOST_S = 30.0

Answer = TypeVar("Answer")
Chance = Callable[[float, float], float]
Told = Callable[[Exception], None]


def doubled_s(failures: int, first_s: float, most_s: float) -> float:
    """The bound of the pause after so many failures in a row: it doubles from first to most."""
    return min(most_s, first_s * 2.0 ** min(failures - 1, 60))


class Backoff:
    """Full jitter: each wait is anything up to a bound that doubles with every failure.

    Many clients that lost their gateway at one moment do not come back at another.

    Args:
        first_s: the bound of the first wait.
        most_s: the bound that no wait's own jitter exceeds.
        chance: draws from a range; for tests.
    """

    def __init__(
        self,
        first_s: float = PAUSE_FIRST_S,
        most_s: float = RETURN_MOST_S,
        chance: Chance = random.uniform,
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._failures = 0

    def succeeded(self) -> None:
        """The next wait is a first one again."""
        self._failures = 0

    def wait_s(self, asked_s: float = 0.0) -> float:
        """Seconds to wait now: what the gateway asked for and the jitter on top."""
        self._failures += 1
        return asked_s + self._chance(0.0, doubled_s(self._failures, self._first_s, self._most_s))


class Retry:
    """Sends a failed request again until it is answered, or time is up.

    Args:
        seconds_max: from the first failure of a request; 0 for not at all.
        told: told of the first failure of each request that is sent again.
        pause: waits; what it raises ends the waiting.
        clock: seconds that never go back; for tests.
        chance: draws a pause from a range; for tests.
    """

    def __init__(
        self,
        seconds_max: float = PATIENCE_S,
        told: Told | None = None,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Chance = random.uniform,
    ) -> None:
        self.seconds_max = seconds_max
        self._told = told
        self._pause = pause
        self._clock = clock
        self._chance = chance

    def call(
        self,
        ask: Callable[[], Answer],
        may_pass: Callable[[Exception], bool],
        told: Told | None = None,
    ) -> Answer:
        """What `ask` answers.

        A pause is never shorter than the `retry_after_s` of the failure, where it has one.

        Args:
            ask: sends the request, always the same one.
            may_pass: whether another attempt may change a failure.
            told: in place of the one that the whole was given.

        Raises:
            Exception: the last failure, or one that another attempt does not change.
        """
        told = told or self._told
        backoff = Backoff(most_s=PAUSE_MOST_S, chance=self._chance)
        give_up_at: float | None = None
        while True:
            try:
                return ask()
            except Exception as error:
                if not may_pass(error):
                    raise
                now, is_first = self._clock(), give_up_at is None
                give_up_at = now + self.seconds_max if give_up_at is None else give_up_at
                wait_s = backoff.wait_s(getattr(error, "retry_after_s", None) or 0.0)
                if now + wait_s >= give_up_at:
                    raise
                if is_first and told is not None:
                    told(error)
            self._pause(wait_s)
