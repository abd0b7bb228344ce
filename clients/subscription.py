"""A subscription that outlives its connection: it notices silence and resumes where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

import httpx2
import msgspec

from tidegate.clients.body import BodyReader, Silence
from tidegate.clients.errors import (
    AnswerInvalid,
    GatewayError,
    GatewayProblem,
    GatewayUnreachable,
    StreamLost,
)
from tidegate.clients.retry import Backoff, Outage, Trouble
from tidegate.clients.sse import Event, Parser

HEARTBEATS_OF_SILENCE_MAX = 2.5  # one late heartbeat is no loss, two missing ones are
HELLO_SECONDS_MAX = 30.0  # until `hello` gives the heartbeat, by which silence is judged
NO_CONTENT = 204  # the standard's word for "do not reconnect"
SESSION_UNKNOWN = "session-unknown"

Connect = Callable[[str], httpx2.Response]


def request_of(**fields: str | None) -> dict[str, str]:
    """Return the fields of a request that are given: an absent one leaves the gateway's default."""
    return {name: text for name, text in fields.items() if text is not None}


class Subscription:
    """An iterator over the events of one subscription, control events included.

    A lost or silent connection is reopened with `Last-Event-ID`; the gateway then sends `hello`
    and, if messages were missed, `resumed`. The iterator ends when the gateway ends the
    subscription, at `seconds_max`, or after `close` from any thread.

    Args:
        connect: opens the stream after the given event id (`""`: from now) and returns the open
            response, status 200 or 204; raises GatewayProblem or GatewayUnreachable.
        seconds_max: end the iteration after this time; None for never.
        last_event_id: resume after this event.
        once: do not reopen a stream that ends normally.
        trouble: called with a sentence once for each kind of failure in an outage.
        backoff: the waits between attempts.
        places: updated from the events, for a reconnect after the session is gone.

    Attributes:
        connections: how many times the stream was opened.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        seconds_max: float | None = None,
        last_event_id: str = "",
        once: bool = False,
        trouble: Trouble | None = None,
        backoff: Backoff | None = None,
        places: Places | None = None,
    ) -> None:
        self.connections = 0
        self._places = places
        self._connect = connect
        self._ends_at = None if seconds_max is None else time.monotonic() + seconds_max
        self._last_id = last_event_id
        self._outage = Outage(trouble or (lambda sentence: None))
        self._backoff = backoff or Backoff()
        self._retry_s = 0.0
        self._silence_s_max = HELLO_SECONDS_MAX
        self._once = once
        self._body: BodyReader | None = None
        self._closed = threading.Event()
        self._over = False
        self._events = self._run()

    @property
    def last_event_id(self) -> str:
        """The id from which a later subscription can resume; empty before the first event."""
        return self._last_id

    @property
    def standing_error(self) -> GatewayError | None:
        """The reason of the current outage; None while connected."""
        return self._outage.error

    def close(self) -> None:
        """End the iteration, at once also where another thread waits in it."""
        self._closed.set()
        if self._body is not None:
            self._body.stop()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
        self._events.close()

    def _run(self) -> Generator[Event]:
        while not self._finished():
            try:
                yield from self._follow(self._open())
                if not self._finished():
                    self._outage.record(StreamLost("the stream ended"))
            except (GatewayProblem, GatewayUnreachable) as error:
                self._record_failure(error)
            if not self._finished():
                self._wait(self._outage.shortened_s(self._backoff.wait_s(self._retry_s)))

    def _open(self) -> httpx2.Response:
        answer = self._connect(self._last_id)
        self.connections += 1
        if answer.status_code == NO_CONTENT:
            self._over = True
            self._outage.end()
        return answer

    def _follow(self, answer: httpx2.Response) -> Iterator[Event]:
        """Yield the events of one connection, until it is lost or no longer wanted."""
        if self._over:
            answer.close()
            return
        parser = Parser(self._last_id)
        self._silence_s_max = HELLO_SECONDS_MAX
        with BodyReader(answer) as body:
            self._body = body
            while not self._finished() and (chunk := self._read(body)) is not None:
                for event in parser.feed(chunk):
                    self._last_id = event.id
                    self._apply_control(event)
                    if self._places is not None:
                        self._places.apply(event)
                    yield event
                self._last_id = parser.last_id  # also moved by an id without data
                if parser.retry_ms is not None:
                    self._retry_s = parser.retry_ms / 1000

    def _read(self, body: BodyReader) -> bytes | None:
        """Return the next bytes; None when the stream has ended or is no longer wanted.

        Raises:
            StreamLost: the connection is lost or silent.
        """
        seconds = self._silence_s_max
        if self._ends_at is not None:
            seconds = min(seconds, max(0.0, self._ends_at - time.monotonic()))
        try:
            chunk = body.read(seconds)
        except Silence:
            if self._finished():
                return None
            raise StreamLost(f"the stream was silent for {seconds:.0f} s") from None
        except httpx2.HTTPError as error:
            if self._finished():
                return None
            reason = str(error) or type(error).__name__
            raise StreamLost(f"the stream was lost: {reason}") from None
        if chunk is None:
            self._over = self._over or self._once
        return chunk

    def _apply_control(self, event: Event) -> None:
        """Apply a control event to the connection."""
        if event.name == "hello":
            self._backoff.succeeded()
            self._outage.end()
            heartbeat_ms = _fields(event).get("heartbeat_ms")
            if isinstance(heartbeat_ms, int | float) and heartbeat_ms > 0:
                self._silence_s_max = HEARTBEATS_OF_SILENCE_MAX * heartbeat_ms / 1000
        elif event.name == "goodbye" and _fields(event).get("reconnect") is False:
            self._over = True

    def _record_failure(self, error: GatewayProblem | GatewayUnreachable) -> None:
        """Raise the failure of a first attempt; record a later one while there is hope."""
        # Most likely a wrong address or options: waiting would hide the reason.
        if self.connections == 0:
            raise error
        is_gone = isinstance(error, GatewayProblem) and error.code == SESSION_UNKNOWN
        if is_gone and self._last_id:  # ids of a pattern belong to their session: begin another
            self._last_id = ""
            self._outage.record(StreamLost("the session is gone; opening another one"))
            return
        self._outage.record(error)
        if isinstance(error, GatewayProblem):
            # Both are minimum waits that the gateway asked for: the longer one counts.
            self._retry_s = max(self._retry_s, error.retry_after_s or 0.0)

    def _finished(self) -> bool:
        late = self._ends_at is not None and time.monotonic() >= self._ends_at
        return self._over or late or self._closed.is_set()

    def _wait(self, seconds: float) -> None:
        if self._ends_at is not None:
            seconds = min(seconds, self._ends_at - time.monotonic())
        self._closed.wait(max(0.0, seconds))


def _fields(event: Event) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(event.text)
    except msgspec.DecodeError:
        raise AnswerInvalid(f"the event {event.name} is not JSON") from None
    return fields if isinstance(fields, dict) else {}


NOWHERE = "unknown-0"
"""A place that no gateway knows: a topic resumes from it with a snapshot."""


class Places:
    """A pattern's place in each topic, read from event ids and from `hello`.

    The reader resumes from these places after its session is gone.
    """

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._topics: dict[str, str] = {}
        self._id = ""

    @property
    def text(self) -> str:
        """The places as a gateway takes them; empty while there are none."""
        return ",".join(f"{topic}={place}" for topic, place in self._places.items())

    def apply(self, event: Event) -> None:
        """Update the places from an event."""
        match event.name:
            case "hello":
                self._places.clear()
                # A pattern's `hello` lists the topics that match now, and no others.
                for entry in event.fields.get("subscriptions", ()):
                    self._begin(entry)
            case "subscribed":
                self._begin(event.fields)
            case "unsubscribed":
                self._places.pop(event.fields.get("topic", ""), None)
            case _ if event.id != self._id:
                self._move(event)
        self._id = event.id

    def _begin(self, entry: dict[str, Any]) -> None:
        if "bookmark" in entry:
            self._put(entry["topic"], entry["bookmark"] or NOWHERE)

    def _move(self, event: Event) -> None:
        place = event.id.partition("~")[2]
        if place:
            topic = self._topics.get(_epoch(place)) or event.fields.get("topic")
            if isinstance(topic, str):
                self._put(topic, place)

    def _put(self, topic: str, place: str) -> None:
        self._places[topic] = place
        # Rows in format `value` do not name their topic; the epoch in their id does from now on.
        if place != NOWHERE:
            self._topics[_epoch(place)] = topic


def _epoch(place: str) -> str:
    return place.rpartition("-")[0]
