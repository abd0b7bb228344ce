"""`python -m bench.servers.iterations FILE serve …`: a gateway that times its loop's iterations.

SIGUSR1 starts a measurement. SIGUSR2 ends it and writes `FILE`: a line for each iteration, with its
microseconds of CPU time and the calls that the watchdog saw, if it took long enough for a look.
CPU time leaves out the time in which a busy machine gives the core to other processes.
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
    """A watched loop's selector, which also times the iterations in CPU time."""

    def __init__(self, watching: Watchdog) -> None:
        super().__init__(watching)
        self._watching = watching
        self._began_s = time.thread_time()
        self.iterations: list[tuple[float, str]] = []

    def select(self, wait_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for the next events, between two iterations."""
        took_s = time.thread_time() - self._began_s
        calls = " > ".join(self._watching.calls_seen[-CALLS_SHOWN:])
        self.iterations.append((took_s, calls))
        ready = super().select(wait_s)
        self._began_s = time.thread_time()
        return ready


def time_iterations(path: Path) -> None:
    """Give loops a timing selector, and install the signals."""
    made: list[TimingSelector] = []

    def new_loop(watching: Watchdog) -> asyncio.AbstractEventLoop:
        made.append(TimingSelector(watching))
        return asyncio.SelectorEventLoop(made[-1])

    def begin(number: int, frame: FrameType | None) -> None:
        made[-1].iterations.clear()

    def end(number: int, frame: FrameType | None) -> None:
        lines = [f"{seconds * 1e6:.0f} {calls}" for seconds, calls in made[-1].iterations]
        # Renamed when complete: the benchmark reads the file as soon as it exists.
        unfinished = path.with_suffix(".part")
        unfinished.write_text("\n".join(lines))
        unfinished.rename(path)

    # In this process only: the gateway itself times its iterations by the clock.
    watchdog.Watchdog.new_loop = new_loop  # type: ignore[assignment, method-assign]  # on purpose
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)


if __name__ == "__main__":
    time_iterations(Path(sys.argv[1]))
    sys.argv[:2] = ["tidegate"]
    sys.exit(main())
