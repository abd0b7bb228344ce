"""The end, asked for by a signal or by a call."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked for the end: SIGINT or SIGTERM, or a call of `ask`."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.interrupted = False

    @property
    def asked(self) -> bool:
        """Whether the streams should end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """End the streams after the batch they are in."""
        self._asked.set()

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once when asked to stop."""
        self._asked.wait(seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take both signals while the block runs; only a main thread may."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
        self.take_signals()
        try:
            yield
        finally:
            for name, action in before.items():
                signal.signal(name, action)

    def take_signals(self) -> None:
        """Install our reaction, also over the one that Spark brings along."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._on_signal)
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = number == signal.SIGINT
        self._asked.set()
