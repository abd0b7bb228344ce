"""A live dict for programs with threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Self

from tidegate.clients.errors import (
    GatewayError,
    GatewayProblem,
    without_traceback,
)
from tidegate.clients.live.records import FLUSH_SECONDS_MAX, Records
from tidegate.clients.live.request import READY_SECONDS_MAX, LiveRequest
from tidegate.clients.replica import Changes
from tidegate.clients.subscription import Subscription

LEAVE_SECONDS_MAX = 10.0
_FORKED = threading.Lock()
"""Held while a live dict is restarted in a forked process."""

Subscribe = Callable[[Mapping[str, str]], Subscription]


class Live(Records):
    """The records of a subscription, which a thread keeps up to date.

    Used as a context manager, it waits for the records when it is entered, and raises if they are
    refused. A lost connection is reopened and resumed; meanwhile `outage` says why the values are
    old. After an error that no attempt can fix the records stay as they are, and `changes` and
    `ready` raise it.

    In a forked process, which has no such thread, it restarts when it is first used there, and
    waits for the records.

    Args:
        request: what is subscribed to.
        subscribe: opens a subscription with such a query.
    """

    def __init__(self, request: LiveRequest, subscribe: Subscribe) -> None:
        self._moved = threading.Condition()
        super().__init__(request, self._moved)
        self._subscribe = subscribe
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._subscription: Subscription | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="tidegate-live", daemon=True)
        self._thread.start()

    def _held(self) -> AbstractContextManager[object]:
        if os.getpid() != self._process:
            self._begin_in_fork()
        return super()._held()

    def _begin_in_fork(self) -> None:
        with _FORKED:
            if os.getpid() == self._process:
                return  # another thread was faster
            # A thread of the parent may have held the lock, with the records changed in part.
            self._lock = self._moved = threading.Condition()
            self._process = os.getpid()
            if not self.end:
                self._reset()
                self._begin()
                self.ready()

    @property
    def outage(self) -> GatewayError | None:
        """The reason why the connection is lost at the moment; None while it is there."""
        with self._held():
            return None if self._subscription is None else self._subscription.standing_error

    @property
    def is_polling(self) -> bool:
        """True while the records follow by long-polling, as no event of the stream gets through."""
        with self._held():
            return self._subscription is not None and self._subscription.is_polling

    def ready(self, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Wait until the records are complete for the first time.

        Raises:
            GatewayError: refused, or not reached.
        """
        with self._held():
            if not self._moved.wait_for(lambda: self.is_ready or self.end, seconds_max):
                raise self._late(seconds_max, self.outage)
            if self.error is not None:
                raise without_traceback(self.error)

    def changes(self, for_s: float | None = None) -> Iterator[Changes]:
        """Yield the changes from now on; the first are the records that are held already.

        A step is a whole flush or snapshot, several of them as one for a loop that is behind. How
        often they come is the interval of the subscription. It ends with the subscription.

        Args:
            for_s: end the iteration after so many seconds; None for never.

        Raises:
            GatewayError: what ended the subscription.
        """
        return self._steps(for_s, None)

    def steps(self, idle_s: float) -> Iterator[Changes]:
        """Yield changes as `changes` does, and empty ones after so many seconds without any.

        So a loop can look at other things meanwhile.

        Raises:
            GatewayError: what ended the subscription.
        """
        return self._steps(None, idle_s)

    def _steps(self, for_s: float | None, idle_s: float | None) -> Iterator[Changes]:
        ends_at = None if for_s is None else time.monotonic() + for_s
        reader = self._read()
        try:
            while True:
                left_s = idle_s if ends_at is None else max(0.0, ends_at - time.monotonic())
                with self._moved:
                    self._moved.wait_for(lambda: self._has_step(reader) or self.end, left_s)
                    self._moved.wait_for(
                        lambda: not self._flush_has_more or self.end, FLUSH_SECONDS_MAX
                    )
                    changes = self._take_step(reader)
                    has_ended = bool(self.end)
                if changes:
                    yield changes
                elif has_ended and self.error is not None:
                    raise without_traceback(self.error)
                elif has_ended or (ends_at is not None and time.monotonic() >= ends_at):
                    return
                elif idle_s is not None:
                    yield changes
        finally:
            with self._moved:
                self._readers.remove(reader)

    def close(self) -> None:
        """End the subscription; the records stay as they are."""
        if os.getpid() != self._process:
            self.end = self.end or "CLOSED"  # only here: the connection belongs to the parent
            return
        with self._moved:
            self._is_closed = True
            subscription = self._subscription
        if subscription is not None:
            subscription.close()
        # With a limit: a gateway that does not answer must not block the caller.
        self._thread.join(LEAVE_SECONDS_MAX)

    def __enter__(self) -> Self:
        try:
            self.ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _run(self) -> None:
        reason: str = "CLOSED"
        error: Exception | None = None
        # Any error, also a fault of this client: a reader would wait for ever.
        try:
            if not self._attempt(with_removals=self.request.wants_removals):
                self._attempt(with_removals=False)
        except Exception as found:
            reason, error = str(found), found
        self._finish(reason, error)
        with self._moved:
            self._moved.notify_all()

    def _attempt(self, *, with_removals: bool) -> bool:
        """Follow the subscription to its end; return False if it has to be without removals."""
        try:
            self._apply_all(self.request.params(with_removals))
        except GatewayProblem as problem:
            if not with_removals:
                raise
            if self.request.has_no_removals(problem):
                return False
            raise self.request.explained(problem) from None
        return True

    def _apply_all(self, params: Mapping[str, str]) -> None:
        with self._moved:
            if self._is_closed:
                return
            subscription = self._subscription = self._subscribe(params)
        with subscription:
            for event in subscription:
                if not self._take(event, subscription.report):
                    subscription.restart()
                with self._moved:
                    self._moved.notify_all()
