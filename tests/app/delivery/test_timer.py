"""One timer: what it was set to last, once."""

from __future__ import annotations

import asyncio

from tests.support.gateways import eventually
from tidegate.app.delivery.timers import Timer
from tidegate.keys.text.duration import MILLISECOND

NOW = 1_000 * MILLISECOND


async def test_it_rings_at_what_it_was_set_to_last() -> None:
    rung: list[int] = []
    timer = Timer(lambda: NOW, rung.append)
    for due in (NOW + 3_600_000 * MILLISECOND, NOW + MILLISECOND, NOW + MILLISECOND):
        timer.set(due)
    await eventually(lambda: bool(rung), "it rings")
    assert rung == [NOW + MILLISECOND]
    timer.set(NOW - MILLISECOND)
    assert len(rung) == 1, "not before its caller is done"
    await asyncio.sleep(0)
    assert rung[1:] == [NOW - MILLISECOND]


async def test_it_is_set_to_nothing() -> None:
    rung: list[int] = []
    timer = Timer(lambda: NOW, rung.append)
    timer.set(NOW)
    timer.set(None)
    await asyncio.sleep(0)
    assert rung == []
