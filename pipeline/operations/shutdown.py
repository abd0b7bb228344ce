"""Stops a command by a signal or a call, and prints its lines.

`__main__` imports this before anything else: from then on a signal ends the command in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

from tidegate.pipeline.errors import EXIT_DONE, EXIT_INTERRUPTED, ArchiveUnusable, PipelineError

# Java runs in its own process session, so Ctrl-C reaches only this process.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPING = "stopping …"


class CutOff(KeyboardInterrupt):
    """A signal ended a block that needs no orderly end.

    A subclass of KeyboardInterrupt, so that no `except Exception` swallows it.

    Attributes:
        exit_code: the command's, as in `Stop`.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class Stopped(Exception):
    """The command was stopped while it waited for a gateway that does not answer."""


class Stop:
    """The request to stop: by SIGINT, by SIGTERM, or by a call of `ask`."""

    def __init__(self) -> None:
        self._asked = False
        # A signal handler runs in the middle of `wait`. It may put into a SimpleQueue there; the
        # lock of an Event would be held by the very thread that it interrupts.
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._cuts_off_after = 0  # the number of signals to go; 0 outside of `cutting_off`
        self.interrupted = False

    @property
    def asked(self) -> bool:
        """True if a stop was requested."""
        return self._asked

    @property
    def exit_code(self) -> int:
        """The command's: SIGINT is an interrupt, SIGTERM is how services end."""
        return EXIT_INTERRUPTED if self.interrupted else EXIT_DONE

    def ask(self) -> None:
        """Request the stop: streams end after their current batch."""
        self._asked = True
        self._woken.put(None)

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once when asked to stop."""
        if not self._asked:
            with suppress(Empty):
                self._woken.get(timeout=seconds)

    def pause(self, seconds: float) -> None:
        """Wait before another attempt.

        Raises:
            Stopped: the command was asked to stop.
        """
        self.wait(seconds)
        if self._asked:
            raise Stopped

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle both signals during the block; outside the main thread do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {name: signal.getsignal(name) for name in SIGNALS}
        for name in SIGNALS:
            signal.signal(name, self._on_signal)
        try:
            yield
        finally:
            for name, action in before.items():
                signal.signal(name, action)

    @contextmanager
    def cutting_off(self, signals: int = 1) -> Iterator[None]:
        """Let a signal end the block at once, even in the middle of a call.

        Args:
            signals: which one ends the block; with 2, the first lets the block end by itself.

        Raises:
            CutOff: a signal ended it; or `signals` is 1 and the stop was requested earlier.
        """
        self._cuts_off_after = signals
        try:
            if self.asked and signals == 1:
                raise CutOff(self.exit_code)
            yield
        except CutOff:
            raise
        except KeyboardInterrupt:  # a library has replaced our signal handler by its own
            self.interrupted = True
            self.ask()
            raise CutOff(self.exit_code) from None
        finally:
            self._cuts_off_after = 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = self.interrupted or number == signal.SIGINT
        self.ask()
        if not self._cuts_off_after:
            return
        self._cuts_off_after -= 1
        if not self._cuts_off_after:  # 0 from now on: another signal does not disturb the clean-up
            raise CutOff(self.exit_code)


@contextmanager
def signals_held() -> Iterator[None]:
    """Defer signals that arrive during the block until its end."""
    if threading.current_thread() is not threading.main_thread():  # no other one handles signals
        yield
        return
    held: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            signal.signal(number, lambda number, frame: held.append(number))
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
        for held_number in held:
            os.kill(os.getpid(), held_number)  # to the process: this thread may have blocked it


def until_stopped(run: Callable[[Stop], object], place: Path | None = None) -> int:
    """Run until the end, or until a signal stops it; return the exit code of the command line.

    0: at the end, or stopped by SIGTERM; 130: by SIGINT; else 1, 2, 3 or 78, after one line on
    standard error.

    Args:
        run: is given the request to stop.
        place: what the line names where files cannot be used; without it that error is raised.

    Raises:
        CutOff: from a block of `run` that a signal has cut off.
    """
    stop = Stop()
    try:
        with stop.listening(), suppress(Stopped):
            run(stop)
    except PipelineError as error:
        print_error(str(error))
        return error.exit_code
    except OSError as error:
        if place is None:
            raise
        print_error(f"{place}: {error.strerror or error}")
        return ArchiveUnusable.exit_code
    return stop.exit_code


def print_line(line: str) -> None:
    """Print a line to standard output and flush it; ignore failures, so that work continues."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:  # a full disk, or a reader that has gone
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(line: str) -> None:
    """Print a line to standard error, after the command's name; ignore failures."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"tidegate: {line}\n")
        sys.stderr.flush()
