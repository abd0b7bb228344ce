"""anyio's worker threads, which serve files: they take real time, and no loop starts them.

asyncio's own are started by `run_in_executor`, which `JumpingLoop` counts by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio.to_thread

from tests.support.clocks.jumping_loop import JumpingLoop


def follow_worker_threads() -> None:
    """Let a jumping clock run with the machine's while such a thread works."""
    run_sync = anyio.to_thread.run_sync

    async def followed(*args: Any, **more: Any) -> Any:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, JumpingLoop):
            return await run_sync(*args, **more)
        with loop.with_outside():
            return await run_sync(*args, **more)

    anyio.to_thread.run_sync = followed  # type: ignore[assignment]  # passes all on as it is
