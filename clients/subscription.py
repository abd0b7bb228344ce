"""A subscription that outlives its connection: it notices silence and resumes where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Self

import httpx2

from tidegate.clients.body import BodyReader, BodyTimeout
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable, StreamLost
from tidegate.clients.sse import Event
from tidegate.clients.stream import Stream, Streamed

Connect = Callable[[str], httpx2.Response]


class Subscription(Streamed):
    """An iterator over the events of one subscription, control events included.

    A lost or silent connection is reopened with `Last-Event-ID`; the gateway then sends `hello`
    and, if messages were missed, `resumed`. The iterator ends when the gateway ends the
    subscription, at `seconds_max`, or after `close` from any thread.

    Args:
        connect: opens the stream after the given event id (`""`: from now) and returns the open
            response, status 200 or 204; raises GatewayProblem or GatewayUnreachable.
        stream: the state of the stream.
        seconds_max: end the iteration after this time; None for never.
    """

    def __init__(
        self, connect: Connect, stream: Stream | None = None, *, seconds_max: float | None = None
    ) -> None:
        self._connect = connect
        super().__init__(stream or Stream())
        self._ends_at = None if seconds_max is None else time.monotonic() + seconds_max
        self._body: BodyReader | None = None
        self._closed = threading.Event()
        self._events = self._run()

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
                answer = self._connect(self._stream.last_id)
            except (GatewayProblem, GatewayUnreachable, AnswerInvalid) as error:
                self._stream.failed(error, time.monotonic())
            else:
                yield from self._followed(answer)
            if not self._finished():
                self._wait(self._stream.wait_s(time.monotonic()))

    def _followed(self, answer: httpx2.Response) -> Iterator[Event]:
        """Yield the events of one connection, and record how it has ended."""
        try:
            self._stream.opened(answer.status_code)
            yield from self._follow(answer)
            if not self._finished():
                self._stream.ended(time.monotonic())
        except GatewayUnreachable as error:
            self._stream.failed(error, time.monotonic())

    def _follow(self, answer: httpx2.Response) -> Iterator[Event]:
        """Yield the events of one connection, until it is lost or no longer wanted."""
        if self._stream.is_over:
            answer.close()
            return
        with BodyReader(answer) as body:
            self._body = body
            while not self._finished() and (chunk := self._read(body)) is not None:
                yield from self._stream.events(chunk)
                if self._stream.is_dropped:
                    return

    def _read(self, body: BodyReader) -> bytes | None:
        """Return the next bytes; None when the stream has ended or is no longer wanted.

        Raises:
            StreamLost: the connection is lost or silent.
        """
        seconds = self._stream.silence_s_max
        if self._ends_at is not None:
            seconds = min(seconds, max(0.0, self._ends_at - time.monotonic()))
        try:
            return body.read(seconds)
        except BodyTimeout:
            if self._finished():
                return None
            raise StreamLost(f"the stream was silent for {seconds:.0f} s") from None
        except httpx2.HTTPError as error:
            if self._finished():
                return None
            reason = str(error) or type(error).__name__
            raise StreamLost(f"the stream was lost: {reason}") from None

    def _finished(self) -> bool:
        late = self._ends_at is not None and time.monotonic() >= self._ends_at
        return self._stream.is_over or late or self._closed.is_set()

    def _wait(self, seconds: float) -> None:
        if self._ends_at is not None:
            seconds = min(seconds, self._ends_at - time.monotonic())
        self._closed.wait(max(0.0, seconds))
