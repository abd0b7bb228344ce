"""What happens in which turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import TypeVar

from tests.support.deadlines import HANGS_S

Name = TypeVar("Name")


class ComputeTime:
    """CPU time in place of the module `time`; it passes only where a test spends it."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    def thread_time(self) -> float:
        """The CPU time that was spent."""
        return self._spent_s

    def spend(self, seconds: float) -> None:
        """Take a little longer than so much CPU time."""
        self._spent_s += 1.01 * seconds


async def turn_by_turn(waiting: Sized, begun: list[Name]) -> list[list[Name]]:
    """What begins now, and in each turn until nothing waits; `begun` is written meanwhile."""
    turns = [list(begun)]
    begun.clear()
    async with asyncio.timeout(HANGS_S):
        while len(waiting):
            await asyncio.sleep(0)
            turns.append(list(begun))
            begun.clear()
    return turns
