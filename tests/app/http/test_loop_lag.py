"""What blocks the event loop is recorded as lag."""

from __future__ import annotations

import asyncio

from tests.support.clocks.jumping_loop import JumpingLoop
from tidegate.app.figures import Histogram
from tidegate.app.http.server import SAMPLE_EVERY_S, LoopLag


async def test_a_loop_that_is_blocked_is_late() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    lags = Histogram((SAMPLE_EVERY_S, 10.0))
    lag = LoopLag(lags)
    lag.start()
    loop.clock.jump(3 * SAMPLE_EVERY_S)  # in which the loop runs nothing
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert lags.count == 1
    assert lags.total >= 2 * SAMPLE_EVERY_S
    lag.stop()
    await asyncio.sleep(2 * SAMPLE_EVERY_S)
    assert lags.count == 1, "nobody polls any more"


async def test_an_idle_loop_is_not_late() -> None:
    lags = Histogram((SAMPLE_EVERY_S, 10.0))
    lag = LoopLag(lags)
    lag.start()
    await asyncio.sleep(3.5 * SAMPLE_EVERY_S)
    lag.stop()
    assert lags.count == 3
    assert lags.total < SAMPLE_EVERY_S
