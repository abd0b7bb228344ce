"""A subscription that survives its connections: it detects silence and resumes where it was."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Self

import httpx2

from tidegate.clients.body import BodyReader, BodyTimeout
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable
from tidegate.clients.sse import Event
from tidegate.clients.stream import Stream, Streamed

Connect = Callable[[str], httpx2.Response]
Ask = Callable[[Any], Any]
"""Sends a `Request` and returns the decoded response."""


class Subscription(Streamed):
    """An iterator over the events of one subscription, control events included.

    A lost or silent connection is reopened with `Last-Event-ID`; the gateway then sends `hello`
    and, if messages were missed, `resumed`. Where a proxy holds the stream back, the subscription
    is polled, and the answers become the same events. The iterator ends when the gateway ends the
    subscription, after `for_s`, or after `close` from any thread.

    Args:
        connect: opens the stream after the given event id (`""`: from now) and returns the open
            response, status 200 or 204; raises GatewayProblem or GatewayUnreachable.
        stream: the state of the stream.
        for_s: end the iteration after so many seconds; None for never.
        ask: sends a `Request` and returns the decoded response; required for polling.
    """

    def __init__(
        self,
        connect: Connect,
        stream: Stream | None = None,
        *,
        for_s: float | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._connect = connect
        self._ask = ask
        self._closed = threading.Event()
        super().__init__(stream or Stream(), for_s, self._closed.is_set, time.monotonic)
        self._body: BodyReader | None = None
        self._polled: Future[Any] | None = None
        self._events = self._run()

    def close(self) -> None:
        """End the iteration, at once also where another thread waits in it."""
        self._closed.set()
        if self._body is not None:
            self._body.stop()
        if self._polled is not None:
            self._polled.cancel()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
        with contextlib.suppress(ValueError):  # another thread iterates, which ends by `close`
            self._events.close()

    def _run(self) -> Generator[Event]:
        while not self._finished():
            if self._stream.should_poll(time.monotonic()):
                if not (yield from self._poll()):
                    self._wait(self._stream.wait_s())
                continue
            try:
                answer = self._connect(self._stream.last_id)
            except (GatewayProblem, GatewayUnreachable, AnswerInvalid) as error:
                self._stream.failed(error, time.monotonic())
            else:
                yield from self._followed(answer)
            if not self._finished():
                self._wait(self._stream.wait_s())

    def _poll(self) -> Generator[Event, None, bool]:
        """Yield the events of one polling request; return True if it was answered."""
        try:
            answer = self._answered(self._stream.next_poll())
        except CancelledError:
            return False
        except (GatewayProblem, GatewayUnreachable, AnswerInvalid) as error:
            self._stream.poll_failed(error)
            return False
        yield from self._stream.poll_succeeded(answer)
        return True

    def _answered(self, request: Any) -> Any:
        """Send a polling request in a separate thread and return its response.

        Raises:
            CancelledError: the iteration has ended.
        """
        assert self._ask is not None, "polling requires `ask`"
        ask, polled = self._ask, Future[Any]()
        self._polled = polled

        def run() -> None:
            try:
                answer, error = ask(request), None
            except Exception as found:  # any error is raised in the reader's thread
                answer, error = None, found
            if not polled.set_running_or_notify_cancel():
                return
            if error is None:
                polled.set_result(answer)
            else:
                polled.set_exception(error)

        threading.Thread(target=run, name="tidegate-poll", daemon=True).start()
        if self._closed.is_set():  # `close` ran before it could cancel this request
            polled.cancel()
        try:
            return polled.result(self._left_s())
        except TimeoutError:
            raise CancelledError from None

    def _followed(self, answer: httpx2.Response) -> Iterator[Event]:
        """Yield the events of one connection, and record how it ended."""
        try:
            yield from self._stream.opened(answer.status_code, answer.headers)
            yield from self._follow(answer)
            if not self._finished():
                self._stream.ended()
        except GatewayUnreachable as error:
            self._stream.failed(error, time.monotonic())

    def _follow(self, answer: httpx2.Response) -> Iterator[Event]:
        """Yield the events of one connection until the connection or the iteration ends."""
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
        """Return the next bytes; None if the stream or the iteration has ended.

        Raises:
            StreamLost: the connection was lost, or silent for too long.
        """
        seconds = self._limit_to_end(self._stream.silence_s_max)
        try:
            return body.read(seconds)
        except BodyTimeout:
            if self._finished():
                return None
            raise self._stream.silence_error(seconds) from None
        except httpx2.HTTPError as error:
            if self._finished():
                return None
            reason = str(error) or type(error).__name__
            raise self._stream.loss_error(f"was lost: {reason}") from None

    def _wait(self, seconds: float) -> None:
        self._closed.wait(self._limit_to_end(seconds))
