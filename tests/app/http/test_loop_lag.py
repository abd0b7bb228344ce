"""What holds the loop is seen as lag."""

from __future__ import annotations

import asyncio
import time

from tests.support.gateways import eventually
from tidegate.app.http.server import LOOK_EVERY_S, LoopLag
from tidegate.app.http.telemetry import Histogram


async def test_a_loop_that_is_held_is_late() -> None:
    lags = Histogram((LOOK_EVERY_S, 10.0))
    lag = LoopLag(lags)
    lag.start()
    time.sleep(3 * LOOK_EVERY_S)  # which holds the loop
    await eventually(lambda: lags.count > 0, "it is called")
    lag.stop()
    assert lags.total >= LOOK_EVERY_S
    count = lags.count
    await asyncio.sleep(2 * LOOK_EVERY_S)
    assert lags.count == count, "nobody looks any more"
