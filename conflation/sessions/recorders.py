"""The recorders that run: the one thing that the engine asks for when nobody is traced."""

from __future__ import annotations

from collections.abc import Callable

from conflation.duration import Instant
from conflation.errors import LimitReached
from conflation.sessions.recorder import Recorder
from conflation.sessions.session import Seat

RECORDERS_MAX = 10


class Recorders:
    """A few at most: each costs a reference for every publish of its topic, and its own engine."""

    def __init__(self) -> None:
        self.running: list[Recorder] = []

    def begin(self, seat: Seat, now: Instant, wake: Callable[[], None]) -> Recorder:
        """Record a seat from now on; `wake` is called whenever there is something to drain.

        Raises:
            LimitReached: as many as may be.
        """
        if len(self.running) >= RECORDERS_MAX:
            raise LimitReached(f"there are {RECORDERS_MAX} traces already")
        recorder = Recorder(seat, now, wake)
        self.running.append(recorder)
        seat.watchers = (*seat.watchers, recorder)
        return recorder

    def end(self, recorder: Recorder) -> None:
        """Nobody reads it any more."""
        self.running.remove(recorder)
        seat = recorder.seat
        seat.watchers = tuple(watcher for watcher in seat.watchers if watcher is not recorder)
