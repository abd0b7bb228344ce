"""The order in which a polled stream answers the positions at which readers wait."""

from __future__ import annotations

import asyncio
from functools import partial

from tests.app.streams.test_driver import Stage
from tests.support.deadlines import HANGS_S
from tidegate.app.access.limits.quota import NOBODY, Quotas
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.polled import RELEASED_AT_ONCE, PolledStream
from tidegate.app.streams.polled_pages import RowForm
from tidegate.conflation.definition import Kind
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options


async def test_whoever_waits_longest_is_answered_first() -> None:
    stage = Stage()
    options = Options.parse("conflation=1h,pace=batch,oof")
    subscription = decide("px", stage.definition, options, command="subscribe")
    usage = Quotas(Settings(), lambda: 0).usage(NOBODY)
    stream = PolledStream(stage.driver, "polled", usage, subscription, RowForm.STATE, Kind.JSON)
    answered: list[int] = []
    positions = range(3 * RELEASED_AT_ONCE)
    for number in positions:
        await stage.say("a1")
        stream.wait(stream.tail, 60, partial(lambda at, _: answered.append(at), number))
    await stage.say("a1")
    stage.pass_ms(3_600_000)
    stage.driver._advance(stage.now)
    async with asyncio.timeout(HANGS_S):
        while len(answered) < len(positions):
            await asyncio.sleep(0)
    assert answered == list(positions)
    stream.close()
