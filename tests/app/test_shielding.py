"""Work that was started is finished, even if its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.app.shielding import run_shielded


async def test_an_answer_and_an_error_come_through() -> None:
    async def answer(number: int) -> int:
        await asyncio.sleep(0)
        return 10 // number

    assert await run_shielded(answer(5)) == 2
    with pytest.raises(ZeroDivisionError):
        await run_shielded(answer(0))


async def test_who_is_cancelled_waits_for_the_end() -> None:
    go_on, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go_on.wait()
        ended.set()

    asked = asyncio.create_task(run_shielded(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        asked.cancel()
    await asyncio.sleep(0)
    assert not asked.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert ended.is_set()
