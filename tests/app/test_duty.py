"""Whose turn it is."""

from __future__ import annotations

import asyncio

from app.duty import Duty


async def test_who_shares_with_nobody_always_has_the_duty() -> None:
    duty = Duty(held=True)
    await duty.begins()
    assert duty.fence is None


async def test_who_waits_goes_on_when_it_is_taken() -> None:
    duty = Duty(held=False)
    waiting = asyncio.create_task(duty.begins())
    await asyncio.sleep(0)
    assert not waiting.done()
    duty.take(7)
    await waiting
    assert (duty.is_held, duty.fence) == (True, 7)
    duty.give_up()
    assert not duty.is_held
