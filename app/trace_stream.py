"""A trace as a response: the recorder runs as long as somebody reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.gateway import Gateway
from app.pulse import Pulse
from app.sse import HEARTBEAT
from app.trace_text import TraceText
from conflation.sessions.session import Seat
from conflation.trace import Trace


class TraceStream(EventSourceResponse):
    """What is decided for a seat from now on, until it is given up or nobody reads any more.

    The decisions are worked out as they are read; whoever reads too slowly is told so, and no more.

    Raises:
        LimitReached: as many traces as may be.
    """

    def __init__(self, gateway: Gateway, seat: Seat) -> None:
        began = gateway.driver.now()
        self._woken = asyncio.Event()
        self._heartbeat_s = gateway.settings.heartbeat.seconds
        self._recorders = gateway.driver.engine.recorders
        self._recorder = self._recorders.begin(seat, began, self._woken.set)
        self._text = TraceText(seat.topic.definition.kind, began)
        super().__init__(self._events(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it; a peer that takes nothing is cut like any other."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._recorders.end(self._recorder)

    async def _events(self) -> AsyncIterator[bytes]:
        trace, clock = Trace(), asyncio.get_running_loop().time
        pulse = Pulse(self._heartbeat_s, clock())
        while True:
            for call in self._recorder.drain():
                for text in self._text.events(trace, call):
                    yield text
                    await asyncio.sleep(0)  # others have their turn between two pieces
                    pulse.wrote(clock())
                if trace.ended is not None:
                    return
            if pulse.heartbeat_due(clock()):
                yield HEARTBEAT
                pulse.wrote(clock())
            await self._wait(pulse.wait_s(clock(), progress=False))

    async def _wait(self, seconds_max: float) -> None:
        try:
            async with asyncio.timeout(seconds_max):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()
