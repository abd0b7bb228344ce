"""The processes of a running Spark: their peak memory, and the CPU time at any moment."""

from __future__ import annotations

import threading
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

EVERY_S = 0.1
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Watched:
    """What the processes below this one have used.

    Attributes:
        peak_bytes: by kind (`java`, `python`), the most resident memory of one process.
    """

    def __init__(self) -> None:
        self.peak_bytes = {"java": 0, "python": 0}
        self._spent_s: dict[str, dict[int, float]] = {"driver": {}, "executor": {}}
        self._moments: list[float] = []
        self._sums_s: dict[str, list[float]] = {role: [] for role in self._spent_s}

    def look(self) -> None:
        """Look at all of them once."""
        executors: set[int] = set()
        for process in psutil.Process().children(recursive=True):  # parents come first
            try:
                times, name = process.cpu_times(), process.name()
                peak = _peak_bytes(process.pid)
                if process.ppid() in executors or EXECUTOR in process.cmdline():
                    executors.add(process.pid)
            except (psutil.Error, OSError):
                continue
            kind = "java" if name == "java" else "python"
            self.peak_bytes[kind] = max(self.peak_bytes[kind], peak)
            role = "executor" if process.pid in executors else "driver"
            self._spent_s[role][process.pid] = times.user + times.system
        self._moments.append(time.time())
        for role, spent in self._spent_s.items():
            self._sums_s[role].append(sum(spent.values()))

    def cpu_s(self, begin: float, end: float, role: str = "driver") -> float:
        """Return the CPU seconds of a role between two moments; on one machine all is `driver`."""
        places = [bisect(self._moments, moment) for moment in (begin, end)]
        sums = self._sums_s[role]
        first, last = (sums[min(len(sums) - 1, place)] for place in places)
        return last - first


@contextmanager
def watched() -> Iterator[Watched]:
    """Watch the processes below this one while the block runs."""
    found, ended = Watched(), threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY_S):
            found.look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        ended.set()
        watching.join()
        found.look()


def _peak_bytes(pid: int) -> int:
    # The kernel keeps the peak: nothing between two looks is missed.
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM:")] or ["VmHWM: 0"]
    return int(peak.split()[1]) * 1024
