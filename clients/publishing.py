"""Publishing that may be sent again: what it answers, and how a lost answer is borne."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from clients.answers import Fields
from clients.backoff import Backoff
from clients.errors import GatewayError, GatewayProblem, GatewayUnreachable
from clients.outage import Trouble

PATIENCE_S = 10.0
WAIT_MOST_S = 2.0
OUT_FOR_A_WHILE = frozenset({502, 503, 504})
NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish request did: how many messages, the bookmarks of the first and the last.

    With `duplicate` it had been sent before. A request with an idempotency key is then told what
    was published at that time; a numbered one that nothing was, without bookmarks.
    """

    topic: str
    messages: int
    first: str | None
    last: str | None
    duplicate: bool

    @classmethod
    def of(cls, answer: Fields) -> Published:
        """From a gateway's answer."""
        return cls(
            topic=answer["topic"],
            messages=answer["messages"],
            first=answer.get("first"),
            last=answer.get("last"),
            duplicate=bool(answer.get("duplicate")),
        )


@dataclass(frozen=True, slots=True)
class Post:
    """One request to publish: its body and its header."""

    body: bytes
    headers: Mapping[str, str]

    @classmethod
    def of(
        cls,
        lines: Iterable[bytes],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        idempotency_key: str | None = None,
        stage: str | None = None,
    ) -> Post:
        """Of JSON texts without line breaks."""
        named = {
            "Tidegate-Producer": producer,
            "Tidegate-Sequence": None if sequence is None else str(sequence),
            "Idempotency-Key": idempotency_key,
            "Tidegate-Stage": stage,
        }
        headers = {name: text for name, text in named.items() if text is not None}
        return cls(b"\n".join(lines), {"Content-Type": NDJSON, **headers})


def new_key() -> str:
    """A key that no other request has."""
    return secrets.token_urlsafe(16)


class Patience:
    """How long a request that may be sent again is sent again.

    A gateway that was never reached is not waited for: most likely it is not there at all.

    Args:
        seconds_max: from the first failure of a request; 0 for not at all.
        clock: seconds that never go back; for tests.
        sleep: waits; for tests.
    """

    def __init__(
        self,
        seconds_max: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds_max = seconds_max
        self._clock = clock
        self._sleep = sleep

    def until_answered(
        self, ask: Callable[[], Fields], was_reached: Callable[[], bool], trouble: Trouble | None
    ) -> Fields:
        """Ask until there is an answer, or patience ends.

        Args:
            ask: sends the request, always the same one.
            was_reached: whether the gateway has ever answered, or may have taken a request.
            trouble: told in a sentence when the first attempt has failed.

        Raises:
            GatewayError: the last failure, or one that another attempt does not change.
        """
        backoff = Backoff(most_s=WAIT_MOST_S)
        give_up_at: float | None = None
        while True:
            try:
                return ask()
            except GatewayError as error:
                if not was_reached() or not may_pass(error):
                    raise
                now = self._clock()
                if give_up_at is None:
                    give_up_at = now + self.seconds_max
                    if trouble is not None and self.seconds_max > 0:
                        trouble(f"{error}; trying again")
                wait_s = backoff.wait_s()
                if now + wait_s >= give_up_at:
                    raise
            self._sleep(wait_s)


def may_pass(error: GatewayError) -> bool:
    """Whether a failure is one of the connection, or of a gateway that is out for a while."""
    if isinstance(error, GatewayProblem):
        return error.status in OUT_FOR_A_WHILE
    return isinstance(error, GatewayUnreachable)
