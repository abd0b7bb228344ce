"""A jumping clock does not jump while a worker thread of anyio is at work."""

from __future__ import annotations

import asyncio
import time

import anyio.to_thread


async def test_no_deadline_passes_while_a_thread_works() -> None:
    async with asyncio.timeout(100):
        await anyio.to_thread.run_sync(time.sleep, 0.05)
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(50)  # takes no time again
    assert asyncio.get_running_loop().time() - began_s >= 50
