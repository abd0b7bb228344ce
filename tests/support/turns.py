"""What happens in which turn of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sized
from typing import TypeVar

from tests.support.deadlines import HANGS_S

Name = TypeVar("Name")


def spends(seconds: float) -> None:
    """Keep the loop busy, for so much CPU time."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


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
