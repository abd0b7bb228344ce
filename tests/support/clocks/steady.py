"""Steady time: what else runs on this machine is no part of a loop's time.

A loop that was held up finds its deadlines passed though nobody in it had a turn: a peer that reads
in the same loop looks frozen, a request that is on its way looks late. On steady time a hold counts
for next to nothing. Sockets are real, and a wait takes its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

HELD_S_MAX = 0.01
"""No longer than this counts between two looks at the time, whatever went on meanwhile."""


class SteadyTime:
    """Seconds; what was waited counts as it was asked for, and a hold as a short one.

    Args:
        now_s: when it begins.
        clock: the machine's time.
    """

    def __init__(self, now_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._clock = clock
        self._seen_s = clock()

    def __call__(self) -> float:
        self._pass(HELD_S_MAX)
        return self._now_s

    def waited(self, asked_s: float | None) -> None:
        """It was waited for so long at most; None: for as long as it took."""
        self._pass(float("inf") if asked_s is None else max(0.0, asked_s))

    def _pass(self, most_s: float) -> None:
        seen_s = self._clock()
        self._now_s += min(most_s, seen_s - self._seen_s)
        self._seen_s = seen_s


@contextlib.contextmanager
def steady(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """The loop goes by steady time; afterwards again by the machine's."""
    assert isinstance(loop, asyncio.SelectorEventLoop)
    inside: Any = loop  # asyncio keeps its selector to itself
    now, select = SteadyTime(loop.time()), inside._selector.select

    def selected(asked_s: float | None = None) -> object:
        now()
        found = select(asked_s)
        now.waited(asked_s)
        return found

    inside.time, inside._selector.select = now, selected
    try:
        yield
    finally:
        del inside.time, inside._selector.select
