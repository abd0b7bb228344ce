"""Work that is finished once it was started, even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


async def run_shielded(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Await work to its end; a cancellation is raised only after the work has finished."""
    # A cancelled `asyncio.shield` returns at once: the caller would give `writing` up while the
    # work still runs, and the next write could overtake it on its way to the engine.
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # no caller is left to report it to
        raise cancelled
    return task.result()
