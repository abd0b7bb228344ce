"""The bound on the memory of the process: above it, nothing that takes more is begun."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidegate.app.logs import event
from tidegate.app.memory import give_back_free_pages
from tidegate.conflation.errors import LimitReached
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant

logger = logging.getLogger("tidegate.memory")

LOOK_EVERY_NS: Final = 100 * MILLISECOND
"""A look costs 10 us, more than a check of a small message."""
SHARE_OF_MACHINE: Final = 0.75
STATM: Final = "/proc/self/statm"
CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


class MemoryBound:
    """Refuses what would keep more, while the process has more memory than it may.

    The resident memory is what the system counts before it ends a process: journals, records,
    stages, sessions, requests under way and what is free inside count alike. Reading, removals and
    the end of sessions go on, so that memory comes back. Before anything is refused, readers whose
    peers take too little are cut: what waits for them is the first to go.

    Args:
        bytes_max: the bound; 0 for three quarters of what the process can have.
        now: the clock, monotonic ns.
        resident: the memory of the process in bytes; 0 if it is not known.

    Attributes:
        cut_stalled: cuts the readers that hold memory, and returns how many.
    """

    def __init__(
        self, bytes_max: int, now: Callable[[], Instant], resident: Callable[[], int] | None = None
    ) -> None:
        self.bytes_max = bytes_max or int(SHARE_OF_MACHINE * available_bytes())
        self.cut_stalled: Callable[[], int] = lambda: 0
        self._now = now
        self._resident = resident or resident_bytes
        self._look_at: Instant | None = None
        self._trim_at: Instant | None = None
        self._is_over = False

    def check(self) -> None:
        """Refuse to begin what takes memory.

        Raises:
            LimitReached: there is too little left.
        """
        now = self._now()
        if self._look_at is None or now >= self._look_at:
            self._look_at = now + LOOK_EVERY_NS
            self._look(now)
        if self._is_over:
            raise LimitReached(
                f"the gateway uses at most {self.bytes_max} bytes of memory (memory_bytes_max)"
            )

    def _look(self, now: Instant) -> None:
        is_over = self._resident() > self.bytes_max
        if is_over and (self._trim_at is None or now >= self._trim_at):
            self._trim_at = now + SECOND
            if count := self.cut_stalled():
                text = "memory_bytes_max is reached: %d readers that take too little were cut"
                logger.warning(text, count, extra=event("memory-full", readers=count))
            # What was freed may still be the process's: glibc gives it back when it is asked.
            give_back_free_pages()
            is_over = self._resident() > self.bytes_max
        if is_over != self._is_over:
            self._is_over = is_over
            if is_over:
                logger.warning(
                    "memory_bytes_max is reached: nothing new is taken", extra=event("memory-full")
                )
            else:
                logger.info("there is memory again", extra=event("memory-back"))


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(STATM, "rb", 0) as statm:  # noqa: PTH123 - a path costs as much again
        return int(statm.read(256).split()[1]) * _PAGE_BYTES
    return 0


def available_bytes() -> int:
    """Return the memory of the machine, or of the container where that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    with contextlib.suppress(OSError, ValueError):
        return min(machine, int(CGROUP.read_text()))  # `max` where there is no bound
    return machine


_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
