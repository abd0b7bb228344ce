"""A publisher for programs with threads."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from tidegate.clients.answers import Published
from tidegate.clients.publishing.outbox import Batch, Outbox
from tidegate.clients.retry import Retry

Send = Callable[[Batch], Published]


class Publisher:
    """Sends messages to one topic in batches, in their order, and each exactly once.

    `publish` returns at once, unless too much waits. A thread sends a batch when it is full or old
    enough, and repeats it while the gateway is out or asks for patience (429). A batch that is
    refused, or not delivered in time, stops the publisher: `publish`, `flush` and `close` then
    raise PublisherStopped, whose `unsent` has every message without an answer.

    Safe to share between threads. In a forked process it starts another thread, which sends only
    what is published there. Close it, or use it as a context manager; the end of the program closes
    it, too.

    Args:
        send: publishes a batch in one attempt.
        outbox: holds what waits, within the limits of batches.
        retry: the attempts at one batch.
    """

    def __init__(self, send: Send, outbox: Outbox, retry: Retry) -> None:
        self._send = send
        self._retry = retry
        self._begin(outbox)
        # The thread, a daemon, would end with the program, and its waiting messages be lost.
        atexit.register(self._close_at_exit)

    def _begin(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._process = os.getpid()
        self._moved = threading.Condition()
        self._is_closed = False
        self._closed_reason = "the publisher is closed"
        self._thread = threading.Thread(target=self._run, name="tidegate-publisher", daemon=True)
        self._thread.start()

    def _begin_in_fork(self) -> None:
        """Restart in a forked process: the thread and the waiting messages are the parent's.

        Raises:
            ValueError: the publisher has a producer.
        """
        if os.getpid() != self._process:
            self._begin(self._outbox.emptied())

    @property
    def delivered(self) -> int:
        """How many messages the gateway has confirmed."""
        return self._outbox.delivered

    @property
    def unsent(self) -> list[bytes]:
        """The messages that no answer has confirmed, in their order."""
        with self._moved:
            return self._outbox.unsent

    def publish(self, message: Any, sequence: int | None = None) -> None:
        """Take a message: a JSON value, or its text as bytes; wait while too much is unsent.

        With a producer each message has a `sequence`, which rises from message to message.

        Raises:
            PublisherStopped: an earlier batch could not be delivered.
            ValueError: the publisher is closed, the text has a line break, or the sequence does
                not rise; or it has a producer and this is a forked process.
        """
        self._begin_in_fork()
        with self._moved:
            self._moved.wait_for(lambda: self._outbox.has_room or self._is_closed)
            if self._is_closed:
                raise ValueError(self._closed_reason)
            self._outbox.add(message, time.monotonic(), sequence)
            self._moved.notify_all()

    def flush(self, seconds_max: float | None = None) -> None:
        """Send all that was published, and wait until it is confirmed.

        Raises:
            PublisherStopped: a batch could not be delivered.
            TimeoutError: it takes longer; nothing is lost, and the publisher goes on.
        """
        if os.getpid() != self._process:
            return  # nothing was published here
        with self._moved:
            count = self._outbox.flush()
            self._moved.notify_all()

            def is_done() -> bool:
                self._outbox.check()
                return self._outbox.delivered >= count

            if not self._moved.wait_for(is_done, seconds_max):
                raise TimeoutError(f"not all messages were delivered in {seconds_max:g} s")

    def close(self) -> None:
        """Flush, and take nothing more.

        Raises:
            PublisherStopped: a batch could not be delivered.
        """
        atexit.unregister(self._close_at_exit)
        if os.getpid() != self._process:
            return  # what waits is the parent's
        with self._moved:
            if self._is_closed:
                return
            self._is_closed = True
            self._moved.notify_all()
        try:
            self.flush()
        finally:
            self._thread.join()

    def _close_at_exit(self) -> None:
        # Other threads may still publish, and did not close it themselves.
        self._closed_reason = "the program ends, which has closed the publisher"
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                published = self._retry.call(functools.partial(self._send, batch))
            except Exception as error:
                with self._moved:
                    self._outbox.failed(error)
                    self._moved.notify_all()
                return
            with self._moved:
                self._outbox.sent(published.sequence)
                self._moved.notify_all()

    def _next(self) -> Batch | None:
        """Wait for a batch that is due; None when the publisher is closed and empty."""
        with self._moved:
            while True:
                if self._is_closed:
                    self._outbox.flush()
                now = time.monotonic()
                batch = self._outbox.next(now)
                if batch is not None or self._is_closed:
                    return batch
                self._moved.wait(self._outbox.due_s(now))
