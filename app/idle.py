"""Idle time: what a loop has that calls when it was asked to, and no later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOK_S = 0.005
LATE_S = 0.002


class Idle:
    """Has work done a step at a time in idle time, as long as there is any.

    Args:
        has_work: whether there is.
        step: a bounded part of it; False where there was nothing that could be done.
    """

    def __init__(self, has_work: Callable[[], bool], step: Callable[[], bool]) -> None:
        self._has_work = has_work
        self._step = step
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_looking(self) -> bool:
        """Whether it waits for idle time."""
        return self._look is not None

    def look(self) -> None:
        """There may be work."""
        if self._look is None and self._has_work():
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(LOOK_S, self._looked, loop.time() + LOOK_S)

    def _looked(self, due_s: float) -> None:
        self._look = None
        is_idle = asyncio.get_running_loop().time() <= due_s + LATE_S
        if not is_idle or self._step():
            self.look()
