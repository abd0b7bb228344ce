"""How long a process took for something, of the time that the machine let it have."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Self

import psutil

LOOK_EVERY_S = 0.02


class Stopwatch:
    """Runs while its block does; `taken_s` is without the time that was spent waiting for a core.

    What a process may take is a promise; what other things on this machine take is none. Linux
    tells how long each process was ready to run and was not let.

    Args:
        pid: of the process; its children are watched with it, as is the test that watches.
    """

    def __init__(self, pid: int) -> None:
        self.taken_s = 0.0
        self._pid = pid
        self._withheld_s: dict[int, float] = {}
        self._before_s: dict[int, float] = {}
        self._stopping = threading.Event()
        self._looking = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._look()
        self._began_s = time.monotonic()
        self._looking.start()
        return self

    def __exit__(self, *raised: object) -> None:
        whole_s = time.monotonic() - self._began_s
        self._stopping.set()
        self._looking.join()
        own_s = self._withheld_s.pop(os.getpid(), 0.0)
        self.taken_s = whole_s - own_s - max(self._withheld_s.values(), default=0.0)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            self._look()
        self._look()

    def _look(self) -> None:
        for pid in (os.getpid(), *_family(self._pid)):
            if (waited_s := waited_for_a_core_s(pid)) is not None:
                before_s = self._before_s.setdefault(pid, waited_s)
                self._withheld_s[pid] = waited_s - before_s


def waited_for_a_core_s(pid: int) -> float | None:
    """Since it began; None of a process that is gone, and where the machine does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return None


def _family(pid: int) -> list[int]:
    try:
        return [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []
