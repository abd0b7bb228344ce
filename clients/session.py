"""A session of many subscriptions on one stream, each with its own replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from tidegate.clients.answers import Fields
from tidegate.clients.replica import Replicas, SessionEvent
from tidegate.clients.requests import subscribing
from tidegate.clients.subscription import Subscription

Ask = Callable[[str, str, Fields | None], Fields]
"""From method, path after the session's address, and body to the JSON object of the answer."""


class Session:
    """Subscriptions on one stream, whose events one thread reads by iterating.

    Other threads may subscribe, change and end subscriptions meanwhile. A lost connection is
    reopened and resumes where it was. The subscriptions' formats are `batch` or `envelope`.

    Args:
        session_id: assigned by the gateway.
        ask: makes a request about this session.
        events: the session's stream.

    Attributes:
        replicas: the records of each subscription, by its name.
    """

    def __init__(self, session_id: str, ask: Ask, events: Subscription) -> None:
        self.id = session_id
        self.replicas = Replicas()
        self._ask = ask
        self._events = events

    def subscribe(
        self,
        topic: str,
        *,
        options: str = "",
        filter: str | None = None,
        order_by: str | None = None,
        command: str | None = None,
        format: str | None = None,
    ) -> str:
        """Add a subscription to a topic or a pattern, and return its name.

        Arguments are those of `Gateway.subscribe`.

        Raises:
            GatewayProblem: refused; nothing was added.
        """
        given = subscribing(options, filter, order_by, command, format)
        body = {"topic": topic, **given}
        name: str = self._ask("POST", "/subscriptions", body)["sub"]
        return self.replicas.named(name)

    def change(self, name: str, **change: Any) -> Fields:
        """Change a running subscription, and return what was granted.

        `change` takes what the endpoint takes: options, conflation, filter, order_by, paused.

        Raises:
            GatewayProblem: refused; nothing was changed.
        """
        return self._ask("PATCH", f"/subscriptions/{name}", change)

    def end(self, name: str) -> None:
        """End a subscription; `unsubscribed` follows."""
        self._ask("DELETE", f"/subscriptions/{name}", None)

    def tune(self, **tuning: Any) -> Fields:
        """Set `limits` or `conflated`, and return the session."""
        return self._ask("PATCH", "", tuning)

    def show(self) -> Fields:
        """Return the session's state and its subscriptions."""
        return self._ask("GET", "", None)

    # Without a request, as it is called where the gateway may not answer.
    def stop(self) -> None:
        """Stop reading, at once also where another thread waits; the gateway keeps the session."""
        self._events.close()

    def close(self) -> None:
        """Stop reading, and close the session at the gateway."""
        self.stop()
        self._ask("DELETE", "", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[SessionEvent]:
        """Yield every event of the stream, applied to the replicas.

        Raises:
            GatewayProblem: session-unknown, after an absence beyond the session's retention.
            AnswerInvalid: a delta came for a record that is not held.
        """
        for event in self._events:
            applied = self.replicas.applied(event)
            for sentence in applied.unreadable:
                self._events.report(sentence)
            yield applied
