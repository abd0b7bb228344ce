"""Retries: the pauses between attempts, when to give up, and outages of a gateway."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidegate.clients.errors import (
    AnswerInvalid,
    GatewayError,
    GatewayProblem,
    GatewayUnreachable,
)

PATIENCE_S = 10.0
TOO_MANY = 429
PAUSE_FIRST_S = 0.25
PAUSE_MOST_S = 2.0  # of a request: someone waits for its answer
# Of a subscription, whose records are old meanwhile. With the gateway's own `retry:`, 1 to 5 s, the
# readers of a restarted gateway reconnect spread over ten seconds.
RETURN_MOST_S = 5.0

Answer = TypeVar("Answer")
Chance = Callable[[float, float], float]
OnRetry = Callable[[Exception], None]


def is_temporary(error: Exception) -> bool:
    """Return True if a repeated request may succeed: no gateway's answer, 429, or any 5xx."""
    if isinstance(error, GatewayProblem):
        return error.status == TOO_MANY or error.status >= 500 or error.is_proxy_outage
    return isinstance(error, GatewayUnreachable | AnswerInvalid)


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


class Attempts:
    """The attempts at one request: how long to wait after a failure, or that it was the last.

    Args:
        seconds_max: counted from the first failure; 0 for no retry.
        is_worth_retrying: returns True if another attempt may succeed.
        on_retry: called with the first failure that is retried.
        chance: draws a pause from a range; for tests.
    """

    def __init__(
        self,
        seconds_max: float,
        is_worth_retrying: Callable[[Exception], bool],
        on_retry: OnRetry | None = None,
        chance: Chance = random.uniform,
    ) -> None:
        self._seconds_max = seconds_max
        self._is_worth_retrying = is_worth_retrying
        self._on_retry = on_retry
        self._backoff = Backoff(most_s=PAUSE_MOST_S, chance=chance)
        self._give_up_at: float | None = None

    def wait_s(self, error: Exception, now: float) -> float:
        """Return the seconds until the next attempt.

        It is never shorter than the `retry_after_s` of the failure, where it has one.

        Raises:
            Exception: `error` itself, if it was the last attempt.
        """
        if not self._is_worth_retrying(error):
            raise error
        is_first = self._give_up_at is None
        # Counted from the first failure: the time of a slow answer does not count.
        give_up_at = now + self._seconds_max if self._give_up_at is None else self._give_up_at
        self._give_up_at = give_up_at
        wait_s = self._backoff.wait_s(getattr(error, "retry_after_s", None) or 0.0)
        # Now and not after the wait: the caller would get the same error later.
        if now + wait_s >= give_up_at:
            raise error
        if is_first and self._on_retry is not None:
            self._on_retry(error)
        return wait_s


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
        is_worth_retrying: Callable[[Exception], bool] = is_temporary,
        on_retry: OnRetry | None = None,
    ) -> Answer:
        """Return the answer of `ask`, calling it until it succeeds or time is up.

        Args:
            ask: sends the request, the same one each time.
            is_worth_retrying: returns True if another attempt may succeed.
            on_retry: instead of the one given at construction.

        Raises:
            Exception: the last failure, or one that is not worth a retry.
        """
        attempts = self.attempts(is_worth_retrying, on_retry)
        while True:
            try:
                return ask()
            except Exception as error:
                wait_s = attempts.wait_s(error, self._clock())
            # Outside of `except`: an exception of the pause, such as a stop, is not chained to it.
            self._pause(wait_s)

    def attempts(
        self,
        is_worth_retrying: Callable[[Exception], bool] = is_temporary,
        on_retry: OnRetry | None = None,
    ) -> Attempts:
        """Return the attempts at one request, for a caller that waits by itself."""
        on_retry = on_retry or self._on_retry
        return Attempts(self.seconds_max, is_worth_retrying, on_retry, self._chance)


async def repeated(ask: Callable[[], Awaitable[Answer]], attempts: Attempts) -> Answer:
    """Return the answer of `ask`, calling it until it succeeds or the attempts are used up.

    Raises:
        Exception: the last failure, or one that is not worth a retry.
    """
    while True:
        try:
            return await ask()
        except Exception as error:
            wait_s = attempts.wait_s(error, time.monotonic())
        await asyncio.sleep(wait_s)


TOPIC_UNKNOWN = "topic-unknown"
OF_TOPIC = frozenset({TOPIC_UNKNOWN, "options-invalid", "filter-invalid"})
WORTH_ANOTHER_TRY = frozenset({408, 429, 500, 502, 503, 504})

Trouble = Callable[[str], None]


def reporting(trouble: Trouble | None) -> OnRetry | None:
    """Return a callback that reports the first failure of a retried request to `trouble`."""
    if trouble is None:
        return None

    def report(error: Exception) -> None:
        trouble(f"{error}; trying again")

    return report


class Outage:
    """The time between a lost connection and the next `hello`.

    A refusal because of the topic's present state (`OF_TOPIC`) belongs to it: a gateway without a
    store has restarted, and the publisher has not created the topic again, or not as it was.

    Args:
        trouble: called with a sentence once for each kind of failure in an outage.

    Attributes:
        error: the last failure; None while connected.
    """

    def __init__(self, trouble: Trouble) -> None:
        self.error: GatewayError | None = None
        self._trouble = trouble
        self._reported: set[tuple[type[GatewayError], str]] = set()

    def end(self) -> None:
        """End the outage: the gateway is back."""
        self.error = None
        self._reported.clear()

    def record(self, error: GatewayError) -> None:
        """Record a failure after which another attempt may succeed.

        Raises:
            GatewayProblem: `error` itself, if no attempt can succeed.
        """
        code = ""
        if isinstance(error, GatewayProblem):
            code = error.code
            passes = error.is_proxy_outage or error.status in WORTH_ANOTHER_TRY or code in OF_TOPIC
            if not passes:
                raise error
        kind = (type(error), code)
        if kind not in self._reported:
            self._reported.add(kind)
            self._trouble(str(error))
        self.error = error
