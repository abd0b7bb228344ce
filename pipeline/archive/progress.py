"""What `journal` and `replay` tell of themselves: how far they are, and what they wait for."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.errors import PipelineError
from pipeline.operations.lines import PROGRESS_EVERY_S
from pipeline.operations.stop import Stop
from pipeline.patience import Waiting

Report = Callable[[str], None]


class Progress:
    """Lines that say how far it is, one every few seconds, none twice in a row."""

    def __init__(self, report: Report, now_s: Callable[[], float]) -> None:
        """`now_s`: monotonic seconds."""
        self._report = report
        self._now_s = now_s
        self._next_s = now_s() + PROGRESS_EVERY_S
        self._said = ""

    def look(self, line: Callable[[], str]) -> None:
        """Say it if that was some seconds ago."""
        if self._now_s() >= self._next_s:
            self._next_s = self._now_s() + PROGRESS_EVERY_S
            self.say(line())

    def say(self, line: str) -> None:
        """Say it, unless it is what was said last."""
        if line != self._said:
            self._said = line
            self._report(line)


class Stopped(Exception):
    """The command was asked to stop while it waited for a gateway that does not answer."""


class ToldWaiting(Waiting):
    """Waits for a gateway no longer than until a signal comes, and says at once that it does."""

    def __init__(self, stop: Stop, report: Report) -> None:
        self._stop = stop
        self._report = report

    def begins(self, trouble: PipelineError, patience_s: float) -> None:
        """Say what is wrong, and for how long it is tried again."""
        self._report(f"{trouble}; trying again for {patience_s:.0f} s")

    def pause(self, seconds: float) -> None:
        """Return after so long.

        Raises:
            Stopped: a signal has come.
        """
        self._stop.wait(seconds)
        if self._stop.asked:
            raise Stopped
