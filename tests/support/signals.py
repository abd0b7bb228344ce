"""Signals that arrive at the worst moment."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, main_thread


@contextmanager
def signals_that_interrupt_no_wait() -> Iterator[None]:
    """Let SIGINT reach another thread than the main one during the block.

    Python records such a signal, but it does not interrupt a wait of the main thread. The same is
    true of a signal that arrives just before a wait starts.
    """
    finished = Event()
    other = Thread(target=finished.wait)
    other.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        finished.set()
        other.join()


def await_wait_of_main_thread() -> None:
    """Return when the main thread waits for the work of another thread, not only for its start."""
    while True:
        frame = sys._current_frames()[main_thread().ident or 0]
        calls = [call.name for call in traceback.extract_stack(frame)]
        if calls[-1] == "wait" and "start" not in calls:
            return
        time.sleep(0.001)
