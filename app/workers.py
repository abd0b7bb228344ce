"""Workers: several gateway processes at one address, and a parent that watches over them.

The parent serves nothing. It holds the address without listening, starts the workers, starts
those again that die, and hands a signal to stop on to all of them.
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
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from app.settings import CONFIG_STATUS

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED_STATUS = 130
AGAIN_S_MIN = 0.1
AGAIN_S_MAX = 10.0
STEADY_S = 30.0
"""Who has lived for so long may start again at once; who dies sooner waits ever longer."""

STOP_S_MAX = 5.0
"""Beyond the time that streams have for their goodbye; then a worker is killed."""

logger = logging.getLogger("tidegate.workers")


@dataclass(frozen=True, slots=True)
class Line:
    """What a worker has of its parent.

    `parent` is a file descriptor that is at its end once the parent is gone. `number` is that of
    its place, from 1: whoever is started in its stead has the same.
    """

    number: int
    parent: int
    _told: int

    def tell_ready(self) -> None:
        """The worker serves."""
        with contextlib.suppress(OSError):  # nobody is there to hear of it
            os.write(self._told, b"ready")


@dataclass(slots=True)
class _Worker:
    """A place for a worker; `failures` are its early deaths in a row."""

    number: int
    pid: int = 0
    heard: int = -1
    is_ready: bool = False
    began_s: float = 0.0
    due_s: float = 0.0
    failures: int = 0


class Workers:
    """A fixed number of processes, each doing the same work.

    Args:
        count: how many.
        work: what each does; its answer is its exit status.
        grace_s: how long a worker may take to stop, beyond a margin.
        on_ready: called once, when all of them serve.
    """

    def __init__(
        self,
        count: int,
        work: Callable[[Line], int],
        *,
        grace_s: float,
        on_ready: Callable[[], None],
    ) -> None:
        self._workers = [_Worker(number) for number in range(1, count + 1)]
        self._work = work
        self._stop_s_max = grace_s + STOP_S_MAX
        self._on_ready = on_ready
        self._selector = selectors.DefaultSelector()
        self._parent, self._alive = os.pipe()
        self._stopped_by: int | None = None
        self._status: int | None = None
        self._has_begun = False
        self._kill_at_s = 0.0

    def run(self) -> int:
        """Until a signal to stop, or until a first worker says that nothing can be served.

        Returns:
            0 after SIGTERM, 130 after an interrupt, or 78 as that worker did.
        """
        with self._signals():
            while True:
                if self._stopped_by is None and self._status is None:
                    self._start_due()
                elif not any(worker.pid for worker in self._workers):
                    break
                for chosen, _ in self._selector.select(self._wait_s()):
                    self._hear(chosen.data, chosen.fd)
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
        # A signal in the midst of this would be handled twice, or miss the newest worker.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        if self._stopped_by is not None:  # it came between two starts
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            return
        heard, told = os.pipe()
        pid = worker.pid = os.fork()
        if not pid:
            os.close(heard)
            os.close(self._alive)
            self._be_worker(Line(worker.number, self._parent, told), masked)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        os.close(told)
        worker.heard, worker.is_ready = heard, False
        worker.began_s = time.monotonic()
        self._selector.register(heard, selectors.EVENT_READ, worker)

    def _be_worker(self, line: Line, masked: Iterable[signal.Signals | int]) -> NoReturn:
        """In the child; it never returns. Of its own group, it hears of Ctrl-C from the parent."""
        status = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (*STOP_SIGNALS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            self._selector.close()
            status = self._work(line)
        finally:
            os._exit(status)

    def _stop(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)
        self._kill_at_s = time.monotonic() + self._stop_s_max

    def _reap(self) -> None:
        for worker in self._workers:
            if worker.pid:
                pid, waited = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._ended(worker, os.waitstatus_to_exitcode(waited))
        is_overdue = self._kill_at_s and time.monotonic() >= self._kill_at_s
        if is_overdue and any(worker.pid for worker in self._workers):
            logger.warning("workers that did not stop in time are killed")
            self._stop(signal.SIGKILL)

    def _ended(self, worker: _Worker, status: int) -> None:
        self._forget(worker.heard)
        worker.pid = 0
        if self._stopped_by is not None or self._status is not None:
            return
        if status == CONFIG_STATUS and not self._has_begun:
            self._status = status
            self._stop(signal.SIGTERM)
            return
        now = time.monotonic()
        worker.failures = 0 if now - worker.began_s >= STEADY_S else worker.failures + 1
        again_s = min(AGAIN_S_MAX, AGAIN_S_MIN * 2 ** min(worker.failures, 16))
        worker.due_s = now + again_s
        logger.warning(
            "worker %d ended with %d; started again in %.1f s", worker.number, status, again_s
        )

    # What is heard

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals wake the parent; what was there before is there again at the end."""
        ours, pythons = socket.socketpair()
        ours.setblocking(False)
        pythons.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, ours)
        before = {number: signal.signal(number, self._note_stop) for number in STOP_SIGNALS}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        woken_before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken_before)
            for number, former in before.items():
                signal.signal(number, former)
            self._selector.close()
            for end in (ours, pythons):
                end.close()
            os.close(self._parent)
            os.close(self._alive)

    def _note_stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped_by = self._stopped_by or number
        self._stop(number)

    def _hear(self, source: object, heard: int) -> None:
        if isinstance(source, socket.socket):
            with contextlib.suppress(BlockingIOError):
                source.recv(4096)
            return
        assert isinstance(source, _Worker)
        if os.read(heard, 16):
            source.is_ready = True
            if not self._has_begun and all(worker.is_ready for worker in self._workers):
                self._has_begun = True
                self._on_ready()
        else:
            self._forget(heard)

    def _forget(self, heard: int) -> None:
        with contextlib.suppress(KeyError, ValueError):  # its end was heard already
            self._selector.unregister(heard)
            os.close(heard)

    def _wait_s(self) -> float | None:
        """Until something is due: a worker to start again, or one to be killed."""
        if self._kill_at_s:
            return max(0.0, self._kill_at_s - time.monotonic())
        dues = [worker.due_s for worker in self._workers if not worker.pid]
        return max(0.0, min(dues) - time.monotonic()) if dues else None
