"""What `journal` and `replay` tell of themselves: how far they are, and what they wait for."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.clients.errors import GatewayError
from tidegate.clients.retry import Retry
from tidegate.pipeline.connection import PATIENCE_S, pipeline_error
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.status import PROGRESS_EVERY_S

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


def told_retry(stop: Stop, report: Report, address: str) -> Retry:
    """Asks a gateway again until a signal comes at most, and says at once that it does.

    A pause raises `Stopped` when a signal has come.
    """

    def told(error: Exception) -> None:
        if isinstance(error, GatewayError):
            error = pipeline_error(error, address)
        report(f"{error}; trying again for {PATIENCE_S:.0f} s")

    def pause(seconds: float) -> None:
        stop.wait(seconds)
        if stop.asked:
            raise Stopped

    return Retry(PATIENCE_S, told, pause)
