"""Trying again: the pauses between attempts, the end of patience, and outages of a gateway."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.clients.errors import GatewayError, GatewayProblem

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


MISSING_SECONDS_MAX = 60.0
TOPIC_UNKNOWN = "topic-unknown"
WORTH_ANOTHER_TRY = frozenset({408, 429, 500, 502, 503, 504})

Trouble = Callable[[str], None]


class Outage:
    """The time between a connection that was lost and the next `hello`; empty while all is well.

    A topic that is unknown at the return may be made again: a gateway that keeps nothing was
    started anew, and its publisher is not there yet. That is waited for in silence, but not for
    ever.

    Args:
        trouble: told in a sentence once for each kind of trouble, until it is over.
        clock: seconds that never go back; for tests.

    Attributes:
        error: what went wrong last; None while there is no outage.
    """

    def __init__(self, trouble: Trouble, clock: Callable[[], float] = time.monotonic) -> None:
        self.error: GatewayError | None = None
        self._trouble = trouble
        self._clock = clock
        self._told: set[type[GatewayError]] = set()
        self._missing_until: float | None = None

    def over(self) -> None:
        """The gateway is back."""
        self.error = None
        self._told.clear()
        self._missing_until = None

    def bear(self, error: GatewayError) -> None:
        """Take note of a failure after which another attempt is worth while.

        Raises:
            GatewayProblem: `error` itself, where it is not.
        """
        if isinstance(error, GatewayProblem) and error.code == TOPIC_UNKNOWN:
            self._await_topic(error)
        else:
            if isinstance(error, GatewayProblem) and error.status not in WORTH_ANOTHER_TRY:
                raise error
            self._missing_until = None
            self._tell(error)
        self.error = error

    def shortened_s(self, wait_s: float) -> float:
        """The wait before the next attempt, so that a topic's last chance comes in time."""
        if self._missing_until is None:
            return wait_s
        return min(wait_s, max(0.0, self._missing_until - self._clock()))

    def _await_topic(self, error: GatewayProblem) -> None:
        now = self._clock()
        if self._missing_until is None:
            self._missing_until = now + MISSING_SECONDS_MAX
        elif now >= self._missing_until:
            raise error

    def _tell(self, error: GatewayError) -> None:
        kind = type(error)
        if kind not in self._told:
            self._told.add(kind)
            self._trouble(str(error))
