"""Cancellation that redis-py has swallowed on its way to a loop that runs until cancelled."""

from __future__ import annotations

import asyncio


def heed_cancellation() -> None:
    """Call it in a loop that waits for the bus, once a turn.

    A task that is cancelled just while redis-py looks whether an idle connection is still good
    goes on as if nothing had been said.

    Raises:
        CancelledError: the task was cancelled, and has not heard of it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
