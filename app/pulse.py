"""The pulse of a stream: when silence is to be filled, when progress is to be told. Pure."""

from __future__ import annotations

PROGRESS_S = 1.0


class Pulse:
    """Two clocks of one stream; all times are seconds that never go back.

    A heartbeat is due after so long without output. Where somebody asked for progress it is
    looked for once a second, and no more rarely than heartbeats come.
    """

    def __init__(self, heartbeat_s: float, now: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._progress_s = min(PROGRESS_S, heartbeat_s)
        self._wrote_at = now
        self._looked_at = now

    def wrote(self, now: float) -> None:
        """Something went out."""
        self._wrote_at = now

    def looked(self, now: float) -> None:
        """Progress was looked for, and told if there was any."""
        self._looked_at = now

    def heartbeat_due(self, now: float) -> bool:
        """Whether the stream has been silent for long enough."""
        return now >= self._wrote_at + self._heartbeat_s

    def progress_due(self, now: float) -> bool:
        """Whether it is time to look for progress."""
        return now >= self._looked_at + self._progress_s

    def wait_s(self, now: float, *, progress: bool) -> float:
        """How long neither will be due; `progress`: somebody asked for it."""
        due = self._wrote_at + self._heartbeat_s
        if progress:
            due = min(due, self._looked_at + self._progress_s)
        return max(0.0, due - now)
