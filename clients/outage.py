"""What stands between a subscription and its gateway: told once, borne while there is hope."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.clients.errors import GatewayError, GatewayProblem

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
