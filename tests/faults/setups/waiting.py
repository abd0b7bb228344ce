"""Bounded waits for a state that other processes reach."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

ASK_AGAIN_S = 0.01


async def happens(condition: Callable[[], bool | Awaitable[bool]], seconds_max: float) -> bool:
    """Whether a condition comes to hold in so many seconds."""
    try:
        async with asyncio.timeout(seconds_max):
            while not await _holds(condition):
                await asyncio.sleep(ASK_AGAIN_S)
    except TimeoutError:
        return False
    return True


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    found = condition()
    return await found if inspect.isawaitable(found) else found
