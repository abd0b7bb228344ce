"""Which gateway leads."""

from __future__ import annotations

import asyncio

from tidegate.app.topics.leadership import Leadership


async def test_who_shares_with_nobody_always_has_the_duty() -> None:
    leadership = Leadership(held=True)
    await leadership.begins()
    assert leadership.fence is None


async def test_who_waits_goes_on_when_it_is_taken() -> None:
    leadership = Leadership(held=False)
    waiting = asyncio.create_task(leadership.begins())
    await asyncio.sleep(0)
    assert not waiting.done()
    leadership.take(7)
    await waiting
    assert (leadership.is_held, leadership.fence) == (True, 7)
    leadership.give_up()
    assert not leadership.is_held
