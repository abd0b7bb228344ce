"""Trying again: the pauses between attempts, the end of patience, and outages of a gateway."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.clients.errors import GatewayError, GatewayProblem

PATIENCE_S = 10.0
PAUSE_FIRST_S = 0.25
PAUSE_MOST_S = 2.0  # of a request: someone waits for its answer
RETURN_MOST_S = 30.0  # of a subscription, which may wait for a long restart

Answer = TypeVar("Answer")
Chance = Callable[[float, float], float]
OnRetry = Callable[[Exception], None]


def doubled_s(failures: int, first_s: float, most_s: float) -> float:
    """Return the bound of a pause, which doubles with each failure in a row."""
    # Without the cap on the exponent a float overflows after a thousand failures.
    return min(most_s, first_s * 2.0 ** min(failures - 1, 60))


class Backoff:
    """Full jitter: each wait is anything up to a bound that doubles with every failure.

    Clients that lost their gateway at the same moment then reconnect at different ones.

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
        """Begin again with a first wait."""
        self._failures = 0

    def wait_s(self, asked_s: float = 0.0) -> float:
        """Return the seconds to wait now: what the gateway asked for, plus jitter."""
        self._failures += 1
        return asked_s + self._chance(0.0, doubled_s(self._failures, self._first_s, self._most_s))


class Retry:
    """Repeats a failed request until it succeeds or time is up.

    Args:
        seconds_max: counted from the first failure of a request; 0 for no retry.
        on_retry: called with the first failure of each request that is retried.
        pause: waits so many seconds; an exception from it ends the retries.
        clock: seconds that never go back; for tests.
        chance: draws a pause from a range; for tests.
    """

    def __init__(
        self,
        seconds_max: float = PATIENCE_S,
        on_retry: OnRetry | None = None,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Chance = random.uniform,
    ) -> None:
        self.seconds_max = seconds_max
        self._on_retry = on_retry
        self._pause = pause
        self._clock = clock
        self._chance = chance

    def call(
        self,
        ask: Callable[[], Answer],
        is_worth_retrying: Callable[[Exception], bool],
        on_retry: OnRetry | None = None,
    ) -> Answer:
        """Return the answer of `ask`, calling it until it succeeds or time is up.

        A pause is never shorter than the `retry_after_s` of the failure, where it has one.

        Args:
            ask: sends the request, the same one each time.
            is_worth_retrying: returns True if another attempt may succeed.
            on_retry: instead of the one given at construction.

        Raises:
            Exception: the last failure, or one that is not worth a retry.
        """
        on_retry = on_retry or self._on_retry
        backoff = Backoff(most_s=PAUSE_MOST_S, chance=self._chance)
        give_up_at: float | None = None
        while True:
            try:
                return ask()
            except Exception as error:
                if not is_worth_retrying(error):
                    raise
                now, is_first = self._clock(), give_up_at is None
                # From the first failure on: a slow answer is not held against the retries.
                give_up_at = now + self.seconds_max if give_up_at is None else give_up_at
                wait_s = backoff.wait_s(getattr(error, "retry_after_s", None) or 0.0)
                # Now and not after the wait: the caller would get the same error later.
                if now + wait_s >= give_up_at:
                    raise
                if is_first and on_retry is not None:
                    on_retry(error)
            # Outside of `except`: what a pause raises, such as a stop, is no effect of the failure.
            self._pause(wait_s)


MISSING_SECONDS_MAX = 60.0
TOPIC_UNKNOWN = "topic-unknown"
WORTH_ANOTHER_TRY = frozenset({408, 429, 500, 502, 503, 504})

Trouble = Callable[[str], None]


class Outage:
    """The time between a lost connection and the next `hello`.

    A topic that is unknown after a reconnect may come back: a gateway without a store has
    restarted, and its publisher has not reconnected yet. That is waited for silently, for
    `MISSING_SECONDS_MAX`.

    Args:
        trouble: called with a sentence once for each kind of failure in an outage.
        clock: seconds that never go back; for tests.

    Attributes:
        error: the last failure; None while connected.
    """

    def __init__(self, trouble: Trouble, clock: Callable[[], float] = time.monotonic) -> None:
        self.error: GatewayError | None = None
        self._trouble = trouble
        self._clock = clock
        self._reported: set[type[GatewayError]] = set()
        self._missing_until: float | None = None

    def end(self) -> None:
        """End the outage: the gateway is back."""
        self.error = None
        self._reported.clear()
        self._missing_until = None

    def record(self, error: GatewayError) -> None:
        """Record a failure after which another attempt may succeed.

        Raises:
            GatewayProblem: `error` itself, if no attempt can succeed.
        """
        if isinstance(error, GatewayProblem) and error.code == TOPIC_UNKNOWN:
            self._await_topic(error)
        else:
            if isinstance(error, GatewayProblem) and error.status not in WORTH_ANOTHER_TRY:
                raise error
            self._missing_until = None
            self._report(error)
        self.error = error

    def shortened_s(self, wait_s: float) -> float:
        """Return the wait before the next attempt, so that a topic's last chance is not missed."""
        if self._missing_until is None:
            return wait_s
        return min(wait_s, max(0.0, self._missing_until - self._clock()))

    def _await_topic(self, error: GatewayProblem) -> None:
        now = self._clock()
        if self._missing_until is None:
            self._missing_until = now + MISSING_SECONDS_MAX
        elif now >= self._missing_until:
            raise error

    def _report(self, error: GatewayError) -> None:
        kind = type(error)
        if kind not in self._reported:
            self._reported.add(kind)
            self._trouble(str(error))
