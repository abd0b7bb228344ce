"""Worker processes: several gateways at one address, supervised by a parent process.

The parent serves no requests. It binds the address without listening, starts the workers, restarts
those that exit, and passes stop signals on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from tidegate.app.settings.settings import AWAY_STATUS, CONFIG_STATUS
from tidegate.app.timers import Backoff

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED_STATUS = 130
RESTART_S_MIN = 0.1
RESTART_S_MAX = 10.0
STEADY_S = 30.0
"""A worker that ran this long restarts soon; after an earlier exit the delay grows."""

STOP_S_MAX = 5.0
"""Extra time for a worker to stop after its streams' grace period; then the parent kills it."""

logger = logging.getLogger("tidegate.workers")


@dataclass(frozen=True, slots=True)
class ParentLink:
    """A worker's link to its parent.

    `parent` is a file descriptor that reaches end of file when the parent exits. `number` counts
    from 1; a replacement worker gets the same number.
    """

    number: int
    parent: int
    _ready: int

    def report_ready(self) -> None:
        """Report to the parent that this worker serves requests."""
        with contextlib.suppress(OSError):  # the parent is gone
            os.write(self._ready, b"ready")


@dataclass(slots=True)
class _Worker:
    """A worker slot; early exits in a row delay its next start."""

    number: int
    pid: int = 0
    ready_fd: int = -1
    is_ready: bool = False
    started_s: float = 0.0
    due_s: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(RESTART_S_MIN, RESTART_S_MAX))


class Workers:
    """Runs a fixed number of worker processes.

    Args:
        count: number of processes.
        work: the body of a worker; returns its exit status.
        grace_s: how long a worker may take to stop, plus a margin.
        on_ready: called once, when all workers serve.
    """

    def __init__(
        self,
        count: int,
        work: Callable[[ParentLink], int],
        *,
        grace_s: float,
        on_ready: Callable[[], None],
    ) -> None:
        self._workers = [_Worker(number) for number in range(1, count + 1)]
        self._work = work
        self._stop_s_max = grace_s + STOP_S_MAX
        self._on_ready = on_ready
        self._passed_on = (signal.SIGHUP,)  # at which workers read files again
        self._selector = selectors.DefaultSelector()
        # Workers hold the read end, only the parent the write end: its death closes the pipe.
        self._parent, self._alive = os.pipe()
        self._stopped_by: int | None = None
        self._status: int | None = None
        self._has_started = False
        self._kill_at_s = 0.0

    def run(self) -> int:
        """Supervise until a stop signal, or until an early worker reports a configuration error.

        Returns:
            0 after SIGTERM, 130 after an interrupt, 78 after a configuration error, 3 without
            a Redis that answers.
        """
        with self._signals():
            while True:
                if self._stopped_by is None and self._status is None:
                    self._start_due()
                elif not any(worker.pid for worker in self._workers):
                    break
                for chosen, _ in self._selector.select(self._wait_s()):
                    self._handle_event(chosen.data, chosen.fd)
                self._reap()
        if self._status is not None:
            return self._status
        return INTERRUPTED_STATUS if self._stopped_by == signal.SIGINT else 0

    # Starting and ending

    def _start_due(self) -> None:
        for worker in self._workers:
            if not worker.pid and worker.due_s <= time.monotonic():
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        # Block signals: one during the fork would be handled twice, or miss the new worker.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP_SIGNALS, *self._passed_on))
        if self._stopped_by is not None:  # the signal came between two starts
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            return
        reader, writer = os.pipe()
        pid = worker.pid = os.fork()
        if not pid:
            os.close(reader)
            os.close(self._alive)
            self._run_child(ParentLink(worker.number, self._parent, writer), masked)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        os.close(writer)
        worker.ready_fd, worker.is_ready = reader, False
        worker.started_s = time.monotonic()
        self._selector.register(reader, selectors.EVENT_READ, worker)

    def _run_child(self, link: ParentLink, masked: Iterable[signal.Signals | int]) -> NoReturn:
        """Run the child process and never return.

        The child gets its own process group, so Ctrl-C reaches it only through the parent.
        """
        status = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (*STOP_SIGNALS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            for number in self._passed_on:  # until its server listens to it
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            self._selector.close()
            status = self._work(link)
        finally:
            os._exit(status)  # skips the parent's exit handlers and buffers, which were forked

    def _pass_on(self, number: int, frame: FrameType | None = None) -> None:
        for worker in self._workers:
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)

    def _stop(self, number: int) -> None:
        self._pass_on(number)
        self._kill_at_s = time.monotonic() + self._stop_s_max

    def _reap(self) -> None:
        for worker in self._workers:
            if worker.pid:
                pid, waited = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._on_exit(worker, os.waitstatus_to_exitcode(waited))
        is_overdue = self._kill_at_s and time.monotonic() >= self._kill_at_s
        if is_overdue and any(worker.pid for worker in self._workers):
            logger.warning("killing workers that did not stop in time")
            self._stop(signal.SIGKILL)

    def _on_exit(self, worker: _Worker, status: int) -> None:
        self._close(worker.ready_fd)
        worker.pid = 0
        if self._stopped_by is not None or self._status is not None:
            return
        # These fail in every worker; later the cause must lie elsewhere.
        if status in (AWAY_STATUS, CONFIG_STATUS) and not self._has_started:
            self._status = status
            self._stop(signal.SIGTERM)
            return
        now = time.monotonic()
        if now - worker.started_s >= STEADY_S:
            worker.backoff.succeeded()
        delay_s = worker.backoff.next_s()
        worker.due_s = now + delay_s
        logger.warning(
            "worker %d exited with status %d; restarting in %.1f s", worker.number, status, delay_s
        )

    # Events

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Wake the selector on signals; restore the previous handlers at the end."""
        receiver, sender = socket.socketpair()
        receiver.setblocking(False)
        sender.setblocking(False)
        self._selector.register(receiver, selectors.EVENT_READ, receiver)
        previous = {number: signal.signal(number, self._note_stop) for number in STOP_SIGNALS}
        for number in self._passed_on:
            previous[number] = signal.signal(number, self._pass_on)
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        former_wakeup_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(former_wakeup_fd)
            for number, former in previous.items():
                signal.signal(number, former)
            self._selector.close()
            for end in (receiver, sender):
                end.close()
            os.close(self._parent)
            os.close(self._alive)

    def _note_stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped_by = self._stopped_by or number
        self._stop(number)

    def _handle_event(self, source: object, descriptor: int) -> None:
        if isinstance(source, socket.socket):
            with contextlib.suppress(BlockingIOError):
                source.recv(4096)
            return
        assert isinstance(source, _Worker)
        if os.read(descriptor, 16):
            source.is_ready = True
            if not self._has_started and all(worker.is_ready for worker in self._workers):
                self._has_started = True
                self._on_ready()
        else:
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        with contextlib.suppress(KeyError, ValueError):  # closed already
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def _wait_s(self) -> float | None:
        """Return the seconds until the next restart or kill, or None if neither is scheduled."""
        if self._kill_at_s:
            return max(0.0, self._kill_at_s - time.monotonic())
        dues = [worker.due_s for worker in self._workers if not worker.pid]
        return max(0.0, min(dues) - time.monotonic()) if dues else None


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """A worker's place among `count` workers of one parent; a replacement keeps the `number`.

    `id` identifies one run of the parent.
    """

    id: str
    number: int
    count: int
