"""`python -m bench.servers.turns FILE serve …`: a gateway that times the turns of its loop.

SIGUSR1 begins, SIGUSR2 ends, and writes `FILE`: a line for each turn, its microseconds of CPU time
and what the watchdog saw it do, if it took long enough to be looked at. CPU time, as a busy machine
takes the core away from a turn: that holds the loop as well, but no code of ours does.
"""

from __future__ import annotations

import asyncio
import selectors
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from tidegate.app.cli.main import main
from tidegate.app.http import watchdog
from tidegate.app.http.watchdog import Watchdog, WatchedSelector

CALLS_SHOWN = 4


class TimingSelector(WatchedSelector):
    """A watched loop's selector, which also times the turns in CPU time."""

    def __init__(self, watching: Watchdog) -> None:
        super().__init__(watching)
        self._watching = watching
        self._began_s = time.thread_time()
        self.turns: list[tuple[float, str]] = []

    def select(self, wait_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for the next events, between two turns."""
        took_s = time.thread_time() - self._began_s
        self.turns.append((took_s, self._seen()))
        ready = super().select(wait_s)
        self._began_s = time.thread_time()
        return ready

    def _seen(self) -> str:
        work = self._watching.work_seen
        return "" if work is None else " > ".join(work.calls[-CALLS_SHOWN:])


def time_turns(path: Path) -> None:
    """Give loops a timing selector, and install the signals."""
    made: list[TimingSelector] = []

    def new_loop(watching: Watchdog) -> asyncio.AbstractEventLoop:
        made.append(TimingSelector(watching))
        return asyncio.SelectorEventLoop(made[-1])

    def begin(number: int, frame: FrameType | None) -> None:
        made[-1].turns.clear()

    def end(number: int, frame: FrameType | None) -> None:
        lines = [f"{seconds * 1e6:.0f} {who}" for seconds, who in made[-1].turns]
        # At once: whoever waits for the file reads it as soon as it is there.
        unfinished = path.with_suffix(".part")
        unfinished.write_text("\n".join(lines))
        unfinished.rename(path)

    # Of this process alone: the product times its turns by the clock.
    watchdog.Watchdog.new_loop = new_loop  # type: ignore[assignment, method-assign]  # on purpose
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)


if __name__ == "__main__":
    time_turns(Path(sys.argv[1]))
    sys.argv[:2] = ["tidegate"]
    sys.exit(main())
