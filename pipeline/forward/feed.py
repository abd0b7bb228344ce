"""The subscription of a topic, as batches of rows with a position.

A thread reads the events. It stops reading when so much waits that it makes a batch; then TCP stops
the gateway, which conflates.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import msgspec

from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.clients.live.request import LiveRequest
from tidegate.clients.sse import Event
from tidegate.clients.subscription import Subscription
from tidegate.pipeline.errors import GatewayRefused
from tidegate.pipeline.forward.definition import ForwardDefinition
from tidegate.pipeline.forward.target import (
    BYTES_MAX,
    DELETE,
    RESET,
    ROWS_MAX,
    FeedBatch,
    Fields,
    Row,
)
from tidegate.pipeline.operations.supervisor import Say

CLOSE_SECONDS_MAX = 2.0
_BATCH = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ROWS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
REMOVED = b'"oof"'


class Feed:
    """Follows a topic from a position on, over lost connections.

    Args:
        gateway: the topic's.
        definition: names topic, options and filter.
        after: the event id to resume after; empty to begin.
        say: gets a line when the connection is lost, and when the position is not known any more.
    """

    def __init__(
        self, gateway: Gateway, definition: ForwardDefinition, after: str, say: Say
    ) -> None:
        self._gateway = gateway
        self._definition = definition
        self._say = say
        self._moved = threading.Condition()
        self._rows: list[Row] = []
        self._bytes = 0
        self._after = after
        self._taken = after
        self._error: Exception | None = None
        self._is_closed = False
        self._subscription: Subscription | None = None
        name = f"feed {definition.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def read(self, seconds: float) -> FeedBatch | None:
        """Return what has arrived, or None if there is nothing within so many seconds.

        Raises:
            GatewayError: the gateway refuses, or did not answer at the start.
            GatewayRefused: it has ended the subscription.
        """
        with self._moved:
            self._moved.wait_for(self._has_news, seconds)
            if not self._rows and self._after == self._taken:
                if self._error is not None:
                    raise self._error
                return None
            rows, self._rows, self._bytes = self._rows, [], 0
            self._taken = self._after
            self._moved.notify_all()
            return FeedBatch(rows, self._taken)

    def close(self) -> None:
        """End the subscription."""
        with self._moved:
            self._is_closed = True
            subscription = self._subscription
            self._moved.notify_all()
        if subscription is not None:
            subscription.close()
        # With a limit: a gateway that does not answer must not hold its caller.
        self._thread.join(CLOSE_SECONDS_MAX)

    def _has_news(self) -> bool:
        return bool(self._rows) or self._after != self._taken or self._error is not None

    def _run(self) -> None:
        definition = self._definition
        request = LiveRequest(definition.topic, definition.options, definition.filter)
        error: Exception
        try:
            try:
                self._follow(request.params(request.wants_removals))
            except GatewayProblem as problem:
                # A topic without a key has none, nor have rows of another key than the topic's.
                if problem.code != "options-invalid" or not request.wants_removals:
                    raise
                self._follow(request.params(with_removals=False))
            error = GatewayRefused(f"the gateway has ended the subscription to {definition.topic}")
        except Exception as found:  # its reader would wait for ever
            error = found
        with self._moved:
            self._error = error
            self._moved.notify_all()

    def _follow(self, params: Mapping[str, str]) -> None:
        subscription = self._subscribe(params)
        if subscription is None:
            return
        with subscription:
            for event in subscription:
                rows = list(self._rows_of(event))
                with self._moved:
                    self._moved.wait_for(self._has_room)
                    if self._is_closed:
                        return
                    self._rows += rows
                    self._bytes += len(event.text)
                    # Nothing at or before this id is still to come, whatever the event was.
                    self._after = event.id
                    self._moved.notify_all()

    def _subscribe(self, params: Mapping[str, str]) -> Subscription | None:
        """Return the subscription, which connects when it is iterated; None after `close`."""
        definition = self._definition
        with self._moved:
            if self._is_closed:
                return None
            self._subscription = self._gateway.subscribe(
                definition.topic,
                options=params.get("options", ""),
                filter=definition.filter,
                format=params["format"],
                last_event_id=self._after,
                trouble=lambda sentence: self._say(f"{definition.name}: {sentence}"),
            )
            return self._subscription

    def _has_room(self) -> bool:
        is_full = len(self._rows) >= ROWS_MAX or self._bytes >= BYTES_MAX
        return not is_full or self._is_closed

    def _rows_of(self, event: Event) -> Iterator[Row]:
        """Yield the rows of an event; the beginning of a snapshot is one, too."""
        topic = self._definition.topic
        if event.name == "message":
            for fields in _ROWS.decode(_BATCH.decode(event.text)["rows"]):
                yield _row(fields)
        elif event.name == "group_begin":
            # Records that have left since are not named: what follows replaces all.
            yield Row(RESET, {"topic": _raw(topic), "op": _raw(RESET)})
        elif event.name == "resumed" and event.fields.get("mode") == "snapshot":
            self._say(
                f"{self._definition.name}: {topic} cannot resume where it was: "
                "its records follow as a snapshot"
            )


def _row(fields: Fields) -> Row:
    if bytes(fields["op"]) == REMOVED:
        return Row(DELETE, fields | {"op": _raw(DELETE)})
    return Row(msgspec.json.decode(fields["op"], type=str), fields)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(text))
