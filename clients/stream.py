"""The state of one event stream across its connections: no I/O, no clock, no threads.

The readers of bytes (`subscription.py`, `aio/subscription.py`) ask it what an answer means, what
to do after a loss, and how long to wait. Times are seconds of any clock that never goes back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from tidegate.clients.answers import problem_from
from tidegate.clients.errors import (
    AnswerInvalid,
    GatewayError,
    GatewayProblem,
    GatewayUnreachable,
    StreamLost,
)
from tidegate.clients.retry import Backoff, Outage, Trouble
from tidegate.clients.sse import Event, Parser

_LOGGER = logging.getLogger("tidegate.clients")
HEARTBEATS_OF_SILENCE_MAX = 2.5  # one late heartbeat is no loss, two missing ones are
# A gateway sends the header and `hello` at once. The heartbeat that `hello` names, 15 s by default,
# is the limit after it.
HELLO_SECONDS_MAX = 15.0
AGAIN_SECONDS = 300.0
"""How long a subscription is polled before its stream is tried again."""
AGAIN_HELLO_SECONDS_MAX = 5.0  # meanwhile nothing is polled
GATEWAY = "Tidegate-Gateway"
NO_CONTENT = 204  # WHATWG HTML, section 9.2: do not reconnect
SESSION_UNKNOWN = "session-unknown"
OPTIONS_INVALID = "options-invalid"
BOOKMARK_EXPIRED = "BOOKMARK_EXPIRED"
"""The reason for an end because the next messages are gone, with `bookmark_not_found=fail`."""
NOWHERE = "unknown-0"
"""A place that no gateway knows: a topic resumes from it with a snapshot."""


class Substitute(Protocol):
    """Follows a subscription while its stream is held back, as `Polling` does."""

    why_not: str

    @property
    def is_granted(self) -> bool:
        """True if requests for rows can follow: what a stream would be granted is known."""

    @property
    def is_whole(self) -> bool:
        """True if the last answer contained all that there was."""

    def begin(self, last_id: str) -> None:
        """Begin after the last event of a stream."""

    def request(self) -> Any:
        """Return what to ask next."""

    def events(self, answer: Any, last_id: str) -> Iterator[Event]:
        """Yield the events that an answer stands for."""


class Stream:
    """The state of an event stream: its place, its outage, and whether it is over.

    Args:
        last_id: resume after this event; empty to begin.
        once: a stream that ends normally is over.
        is_session: it has several subscriptions, each of which may end.
        trouble: called with a sentence once for each kind of failure in an outage, for a record
            that cannot be read, for topics that a pattern leaves out, and for messages that are
            missing for good. By default the logger `tidegate.clients` warns with the sentence.
        backoff: the waits between attempts.
        polling: follows the subscription while the stream is held back; None: nothing does.

    Attributes:
        gateway_id: the gateway that serves the connection, if it is one of several.
        last_id: the id of the last event that was taken: `Last-Event-ID` of the next attempt.
        connections: how many times it was opened.
        is_over: True if no more events follow, and no connection is to be opened.
        is_dropped: True if the connection is to be closed, and the stream restarted.
        silence_s_max: a connection that is silent for longer is lost.
        is_heard: bytes have arrived on this connection.
        is_polling: polling replaces the stream.
        places: of a pattern, the bookmarks by topic, for a reconnect after its session is gone.
    """

    def __init__(
        self,
        last_id: str = "",
        *,
        once: bool = False,
        is_session: bool = False,
        trouble: Trouble | None = None,
        backoff: Backoff | None = None,
        polling: Substitute | None = None,
    ) -> None:
        self.last_id = last_id
        self.connections = 0
        self.is_over = False
        self.is_dropped = False
        self.silence_s_max = HELLO_SECONDS_MAX
        self.is_heard = False
        self.is_polling = False
        self._polling = polling
        self._polls_until = 0.0
        self._was_reached = False
        self._once = once
        self._is_session = is_session
        self.report = trouble or _LOGGER.warning
        self._outage = Outage(self.report)
        self._backoff = backoff or Backoff()
        self.places: Places | None = None
        self._retry_s = 0.0
        self._retry_after_s = 0.0  # of the last attempt, only for the next one
        self._parser = Parser(last_id)
        self.gateway_id = ""
        self._farewell = ""
        self._refusal: GatewayProblem | None = None
        self._topic = ""  # of a subscription to one topic

    @classmethod
    def of(
        cls,
        topic: str,
        params: Mapping[str, str],
        last_id: str = "",
        trouble: Trouble | None = None,
        polling: Substitute | None = None,
    ) -> Stream:
        """Return the stream of a topic or a pattern, asked for with this query."""
        is_sow = params.get("command") == "sow"
        stream = cls(last_id, once=is_sow, trouble=trouble, polling=polling)
        if ("*" in topic or ">" in topic) and not is_sow:
            # Ids of a pattern's stream end with its session: the place in each topic does not.
            stream.places = Places()
        elif not is_sow:
            stream._topic = topic
        return stream

    @property
    def standing_error(self) -> GatewayError | None:
        """The reason of the current outage; None while connected."""
        return self._outage.error

    @property
    def patience_s(self) -> float:
        """How long to wait for the header of the next answer, and for its first event."""
        return AGAIN_HELLO_SECONDS_MAX if self.is_polling else HELLO_SECONDS_MAX

    def opened(self, status: int, headers: Mapping[str, str]) -> tuple[Event, ...]:
        """Record the answer to an attempt: 200, or 204 for a stream that is over.

        Returns the event that the lost connection would have delivered: a subscription to one topic
        is over because the topic was deleted.
        """
        self.connections += 1
        self.gateway_id = headers.get(GATEWAY, "")
        self._farewell = ""
        self._refusal = None
        self._retry_after_s = 0.0
        self.is_dropped = self.is_heard = False
        self._parser = Parser(self.last_id)
        self.silence_s_max = self.patience_s
        if status != NO_CONTENT:
            return ()
        self.is_over = True
        self._outage.end()
        if not self._topic:
            return ()
        removed = msgspec.json.encode({"topic": self._topic, "reason": "REMOVED"})
        return (Event("unsubscribed", removed.decode(), self.last_id),)

    def events(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete; each counts as taken when it is yielded.

        Raises:
            AnswerInvalid: not an event stream of a gateway.
            GatewayProblem: `bookmark-expired`, at the end of a subscription with
                `bookmark_not_found=fail`.
        """
        self.is_heard = True
        for event in self._parser.feed(chunk):
            self.last_id = event.id
            self._apply_control(event)
            if self.places is not None:
                self.places.apply(event)
            yield event
            if self.is_dropped:  # by the consumer of this event: later ones would build on it
                return
        self.last_id = self._parser.last_id  # also moved by an id without data
        if self._parser.retry_ms is not None:
            self._retry_s = self._parser.retry_ms / 1000

    def ended(self) -> None:
        """Record that a connection has ended normally, without an error.

        Raises:
            GatewayProblem: it was refused by an event, and no attempt can succeed.
        """
        if self.is_dropped:
            self._outage.record(StreamLost("the stream begins again"))
            return
        self.is_over = self.is_over or self._once
        if not self.is_over:
            self._outage.record(self._refusal or self.loss_error(f"ended{self._farewell}"))

    def failed(
        self, error: GatewayProblem | GatewayUnreachable | AnswerInvalid, now: float
    ) -> None:
        """Record a refused attempt, a lost connection, or an answer that no gateway gives.

        Raises:
            GatewayError: `error` itself, if no attempt can succeed, or if it was the first one.
        """
        self._retry_after_s = _retry_after_s(error)
        is_held_back = isinstance(error, GatewayUnreachable) and error.timed_out
        if is_held_back and self._begins_to_poll(now):
            if not self.is_polling:
                self._outage.record(error)
            return
        # Most likely a wrong address or options: waiting would hide the reason.
        if self.connections == 0 and not self._was_reached:
            raise error
        if is_held_back and self._polling is not None:
            error = _not_polled(self._polling.why_not)
        is_gone = isinstance(error, GatewayProblem) and error.code == SESSION_UNKNOWN
        if is_gone and self.last_id:  # ids of a pattern belong to their session: begin another
            self.last_id = ""
            self._outage.record(StreamLost("the session is gone; opening another one"))
            return
        self._outage.record(error)

    def silence_error(self, seconds: float) -> StreamLost:
        """Return the error of a connection that sent nothing for this many seconds."""
        lost = self.loss_error(f"was silent for {seconds:.0f} s")
        lost.timed_out = not self.is_heard
        return lost

    def loss_error(self, what: str) -> StreamLost:
        """Return the error of a stream that, as `what` says, "ended" or "was lost: …"."""
        whose = f" of gateway {self.gateway_id}" if self.gateway_id else ""
        return StreamLost(f"the stream{whose} {what}")

    def should_poll(self, now: float) -> bool:
        """Return True while the subscription is polled because its stream does not get through."""
        polling = self._polling
        if polling is None or polling.why_not:
            return False
        return now < self._polls_until or not polling.is_whole

    def next_poll(self) -> Any:
        """Return the next polling request."""
        assert self._polling is not None, "should_poll was true"
        return self._polling.request()

    def poll_succeeded(self, answer: Any) -> Iterator[Event]:
        """Yield the events of an answer to a polling request."""
        polling = self._polling
        assert polling is not None, "should_poll was true"
        self._was_reached = True
        if polling.is_granted:
            self._backoff.succeeded()
            self._outage.end()
            if not self.is_polling:
                self.report("no event of the stream gets through: polling")
            self.is_polling = True
        for event in polling.events(answer, self.last_id):
            self.last_id = event.id
            yield event
        if polling.why_not:
            self._outage.record(_not_polled(polling.why_not))

    def poll_failed(self, error: GatewayProblem | GatewayUnreachable | AnswerInvalid) -> None:
        """Record a request to poll that was refused, or got no answer.

        Raises:
            GatewayError: `error` itself, as of `failed`.
        """
        polling = self._polling
        assert polling is not None, "should_poll was true"
        self._retry_after_s = _retry_after_s(error)
        self.is_polling = False
        # Polling fails, too: the stream is tried first, and polling would begin after `last_id`.
        self._polls_until = 0.0
        polling.begin(self.last_id)
        if self.connections == 0 and not self._was_reached:
            raise error
        is_refused = isinstance(error, GatewayProblem) and error.code == OPTIONS_INVALID
        if is_refused and polling.is_granted:  # a stream accepts these options, polling does not
            polling.why_not = str(error)
            self._outage.record(_not_polled(polling.why_not))
            return
        self._outage.record(error)

    def wait_s(self) -> float:
        """Return the seconds until the next attempt."""
        # Both are minimum waits that the gateway asked for: the longer one counts.
        return self._backoff.wait_s(max(self._retry_s, self._retry_after_s))

    def opening(self, params: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Return the method of the next opening with this query, and httpx2's arguments."""
        if self.last_id or self.places is None or not self.places.text:
            return "GET", {"params": params}
        # The body takes as many places as a pattern has topics; a query has 8 KiB.
        return "POST", {"json": {**params, "bookmarks": self.places.text}}

    def restart(self) -> None:
        """Forget the place, and drop the connection: the next one begins from the beginning."""
        self.last_id = ""
        self.is_dropped = True
        if self.places is not None:
            self.places.clear()

    def _begins_to_poll(self, now: float) -> bool:
        """Begin to poll, or go on, if this subscription can be polled; return whether it can."""
        if self._polling is None or self._polling.why_not:
            return False
        if not self.is_polling:
            self._polling.begin(self.last_id)
        self._polls_until = now + AGAIN_SECONDS
        return True

    def _apply_control(self, event: Event) -> None:
        """Apply a control event to the connection."""
        if event.name == "hello":
            self.is_polling = False
            self._backoff.succeeded()
            self._outage.end()
            heartbeat_ms = _fields(event).get("heartbeat_ms")
            if isinstance(heartbeat_ms, int | float) and heartbeat_ms > 0:
                self.silence_s_max = HEARTBEATS_OF_SILENCE_MAX * heartbeat_ms / 1000
        elif event.name == "goodbye":
            fields = _fields(event)
            self._farewell = f": {fields.get('reason')}"
            self.is_over = self.is_over or fields.get("reconnect") is False
        elif event.name == "resumed" and _fields(event).get("not_found"):
            self.report(_missing(_fields(event)))
        elif event.name == "unsubscribed" and _fields(event).get("reason") == BOOKMARK_EXPIRED:
            expired = _expired(_fields(event))
            if not self._is_session:
                raise expired
            self.report(str(expired))  # its other subscriptions go on
        elif event.name == "refused" and (topic := _fields(event).get("topic")):
            # A pattern goes on without the topic, whose absence nobody would notice.
            self.report(f"{topic}: {_fields(event).get('detail') or 'a topic is left out'}")
        elif event.name == "refused":
            self._refusal = problem_from(_fields(event))


class Streamed:
    """A subscription: the properties of its stream, and how long it goes on; for both readers.

    Args:
        stream: the state of the stream.
        for_s: end the iteration after so many seconds; None for never.
        is_closed: returns True once the iteration was closed.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        stream: Stream,
        for_s: float | None,
        is_closed: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._stream = stream
        self._is_closed = is_closed
        self._clock = clock
        self._ends_at = None if for_s is None else clock() + for_s

    @property
    def connections(self) -> int:
        """How many times the stream was opened."""
        return self._stream.connections

    @property
    def gateway_id(self) -> str:
        """The id of the gateway that serves the stream; empty where there are not several."""
        return self._stream.gateway_id

    @property
    def last_event_id(self) -> str:
        """The id from which a later subscription can resume; empty before the first event."""
        return self._stream.last_id

    @property
    def standing_error(self) -> GatewayError | None:
        """The reason of the current outage; None while connected, and while polling."""
        return self._stream.standing_error

    @property
    def is_polling(self) -> bool:
        """True while it follows by long-polling, as no event of the stream gets through."""
        return self._stream.is_polling

    def restart(self) -> None:
        """Drop the connection and restart without a place; call it from the iterating code."""
        self._stream.restart()

    def report(self, sentence: str) -> None:
        """Call `trouble` with a sentence."""
        self._stream.report(sentence)

    def _left_s(self) -> float | None:
        """Return the seconds until the iteration ends; None for no end."""
        return None if self._ends_at is None else max(0.0, self._ends_at - self._clock())

    def _limit_to_end(self, seconds: float) -> float:
        """Return `seconds`, or the time until the iteration ends if that is shorter."""
        left_s = self._left_s()
        return seconds if left_s is None else min(seconds, left_s)

    def _finished(self) -> bool:
        late = self._ends_at is not None and self._clock() >= self._ends_at
        return self._stream.is_over or late or self._is_closed()


def _missing(resumed: Mapping[str, Any]) -> str:
    """Return a sentence for a `resumed` that says that messages are missing for good."""
    gap = resumed.get("gap_messages")
    missing = "messages" if gap is None else f"up to {gap} messages"
    instead = "all that is kept" if resumed.get("not_found") == "epoch" else "a snapshot"
    return f"{resumed.get('topic')}: {missing} are missing for good; {instead} follows"


def _expired(unsubscribed: Mapping[str, Any]) -> GatewayProblem:
    """Return the refusal that a request to resume the ended subscription would get."""
    return GatewayProblem(
        410,
        "bookmark-expired",
        "The journal does not go on from there",
        "the next messages are no longer kept",
        about=f"topic {unsubscribed.get('topic')}",
    )


def _retry_after_s(error: Exception) -> float:
    return (error.retry_after_s or 0.0) if isinstance(error, GatewayProblem) else 0.0


def _not_polled(reason: str) -> StreamLost:
    return StreamLost(
        f"no event of the stream gets through, and polling cannot replace it: {reason}"
    )


def _fields(event: Event) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(event.text)
    except msgspec.DecodeError:
        raise AnswerInvalid(f"the event {event.name} is not JSON") from None
    return fields if isinstance(fields, dict) else {}


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

    def clear(self) -> None:
        """Forget all places."""
        self._places.clear()

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
            topic = self._topics.get(_epoch(place)) or event.head.topic
            if topic is not None:
                self._put(topic, place)

    def _put(self, topic: str, place: str) -> None:
        self._places[topic] = place
        # Rows in format `value` do not name their topic; the epoch in their id does from now on.
        if place != NOWHERE:
            self._topics[_epoch(place)] = topic


def _epoch(place: str) -> str:
    return place.rpartition("-")[0]
