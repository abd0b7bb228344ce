"""Streams of subjects: opened with what they present, and ended when that is void."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from tests.support.clocks.jumping_loop import JumpingLoop
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, Stream

SOON_S = 5.0
"""How soon a running stream hears of a change, on a clock that no other program slows down."""
AT = "/v1/topics/prices.eu/subscribe"


@contextlib.asynccontextmanager
async def stream_of(
    running: Running, headers: dict[str, str], at: str = AT, after: str = "hello"
) -> AsyncIterator[Stream]:
    """A stream that has begun: the event `after` has come."""
    async with running.http.stream("GET", at, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        stream = Stream(answer)
        await stream.until(after)
        yield stream


def soon() -> asyncio.Timeout:
    """The deadline by which a change has its effect; a wide one where time does not jump."""
    loop = asyncio.get_running_loop()
    jumps = isinstance(loop, JumpingLoop) and not loop.clock.outside
    return asyncio.timeout(SOON_S if jumps else HANGS_S)


async def ends(stream: Stream) -> None:
    """The stream is ended soon, because what it was opened with is void."""
    async with soon():
        said = json.loads((await stream.until("goodbye"))[-1].text)
    assert said == {"reason": "REVOKED", "reconnect": True}
