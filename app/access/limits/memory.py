"""The bound on the memory of the process: above it, nothing that takes more is begun."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tidegate.app.logs import event
from tidegate.app.memory import give_back_free_pages
from tidegate.conflation.errors import LimitReached
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant

logger = logging.getLogger("tidegate.memory")

MEASURE_EVERY_NS: Final = 100 * MILLISECOND
"""A look costs 10 us, more than a check of a small message."""
SHARE_OF_MACHINE: Final = 0.75
STATM: Final = "/proc/self/statm"
OWN_GROUPS: Final = Path("/proc/self/cgroup")
MOUNT: Final = Path("/sys/fs/cgroup")


class MemoryBound:
    """Refuses what would keep more, while the process has more memory than it may.

    The resident memory is what the system counts before it ends a process: journals, records,
    stages, sessions, requests under way and what is free inside count alike. Reading, removals and
    the end of sessions go on, so that memory comes back. Before anything is refused, readers whose
    peers take too little are cut: what waits for them is the first to go.

    Args:
        bytes_max: the bound; 0 for three quarters of what the process can have.
        now: the clock, monotonic ns.
        workers: how many processes share what there is.
        resident: the memory of the process in bytes; 0 if it is not known.

    Attributes:
        cut_stalled: cuts the readers that hold memory, and returns how many.
    """

    def __init__(
        self,
        bytes_max: int,
        now: Callable[[], Instant],
        resident: Callable[[], int] | None = None,
        *,
        workers: int = 1,
    ) -> None:
        self.bytes_max = bytes_max or int(SHARE_OF_MACHINE * available_bytes() / workers)
        self.cut_stalled: Callable[[], int] = lambda: 0
        self._now = now
        self._resident = resident or resident_bytes
        self._measure_at: Instant | None = None
        self._trim_at: Instant | None = None
        self._is_over = False

    def check(self) -> None:
        """Refuse to begin what takes memory.

        Raises:
            LimitReached: there is too little left.
        """
        now = self._now()
        if self._measure_at is None or now >= self._measure_at:
            self._measure_at = now + MEASURE_EVERY_NS
            self._measure(now)
        if self._is_over:
            raise LimitReached(
                f"the gateway uses at most {self.bytes_max} bytes of memory (memory_bytes_max)"
            )

    def _measure(self, now: Instant) -> None:
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
    """Return the memory of the machine, or of the container or unit where that is less."""
    return min(os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES, *control_group_bounds())


def control_group_bounds(groups: Path = OWN_GROUPS, mount: Path = MOUNT) -> list[int]:
    """Return the bounds in bytes of this process's control groups, up to the root.

    Args:
        groups: the list of the process's groups, of version 2 and of version 1.
        mount: where they are mounted. In a container its own group may be the root there.
    """
    found: list[int] = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                found += _bounds(mount, path, ("memory.max", "memory.high"))
            elif "memory" in controllers.split(","):
                found += _bounds(mount / "memory", path, ("memory.limit_in_bytes",))
    return found


def _bounds(root: Path, path: str, names: Sequence[str]) -> Iterator[int]:
    group = root / path.lstrip("/")
    for each in (group, *group.parents):
        for name in names:
            # `max` where there is no bound; no such folder where the path is another mount's.
            with contextlib.suppress(OSError, ValueError):
                yield int((each / name).read_text())
        if each == root:
            return


_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
