"""Which stream writes when: wakeups, turns of the loop, and times in groups."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Final

# How long streams may write before the loop looks at everything else.
TURN_S: Final = 0.001

# A time that is further away than this is put off to the next multiple of GROUP_S: to wake the
# loop costs more than a heartbeat, and nobody misses a heartbeat by so little.
GROUPED_S: Final = 1.0
GROUP_S: Final = 0.05

INFINITY: Final = float("inf")


class Wakeup:
    """How the stream of one session learns that there is something to write.

    Attributes:
        on_woken: called in place of waking whoever waits.
    """

    __slots__ = ("_woken", "on_woken")

    def __init__(self) -> None:
        self.on_woken: Callable[[], None] | None = None
        # Made at its first use: most streams are called and wait for nothing.
        self._woken: asyncio.Event | None = None

    def wake(self) -> None:
        """Wake the stream: its session has outputs or notices for it alone."""
        if self.on_woken is None:
            self._event().set()
        else:
            self.on_woken()

    async def wait(self, seconds_max: float) -> bool:
        """Wait until the stream is woken; return False after `seconds_max`."""
        woken = self._event()
        try:
            async with asyncio.timeout(seconds_max):
                await woken.wait()
        except TimeoutError:
            return False
        woken.clear()
        return True

    def _event(self) -> asyncio.Event:
        if self._woken is None:
            self._woken = asyncio.Event()
        return self._woken


class StreamScheduler:
    """Calls the streams that have something to write, and those whose time has come.

    A flush wakes thousands of streams at once. They write in turns of a millisecond, so that other
    requests wait for a turn and not for the flush. One timer serves all: idle streams, which wait
    for their heartbeats, are called in groups.
    """

    def __init__(self) -> None:
        self._ready: dict[Callable[[], None], None] = {}
        self._behind: dict[Callable[[], None], None] = {}
        self._is_called = False
        self._due: dict[float, list[tuple[Callable[[], None], bool]]] = {}
        self._times: list[float] = []  # a heap of the times in `_due`
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = INFINITY

    def call_soon(self, stream: Callable[[], None], *, behind: bool = False) -> None:
        """Call a stream in the loop's next turn, once however often this is asked.

        `behind`: after the others, and for less time, as it may take long, such as one of many
        subscriptions.
        """
        (self._behind if behind else self._ready)[stream] = None
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def call_at(self, due_s: float, stream: Callable[[], None], *, behind: bool = False) -> None:
        """Call a stream at a time of the loop's clock, in seconds, or a little later.

        `behind`: as of `call_soon`.
        """
        if due_s > asyncio.get_running_loop().time() + GROUPED_S:
            due_s = math.ceil(due_s / GROUP_S) * GROUP_S
        call = (stream, behind)
        calls = self._due.get(due_s)
        if calls is not None:
            calls.append(call)
            return
        self._due[due_s] = [call]
        heapq.heappush(self._times, due_s)
        if due_s < self._timer_due_s:
            self._arm()

    def call_now(self, wake: Callable[[], None]) -> None:
        """Call what wakes streams, and then these, in this turn of the loop, for once.

        For a timer: another turn of the loop costs a small flush as much as five of its writes.
        """
        is_called, self._is_called = self._is_called, True
        try:
            wake()
        finally:
            _call(self._ready, TURN_S)
            if not is_called:
                self._end_turn()

    def _turn(self) -> None:
        try:
            _call(self._ready, TURN_S)
            _call(self._behind, TURN_S / 2)  # one at least, however many others are ready
        finally:  # a stream that fails must not end the turns of all others
            self._end_turn()

    def _end_turn(self) -> None:
        self._is_called = bool(self._ready or self._behind)
        if self._is_called:
            asyncio.get_running_loop().call_soon(self._turn)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due_s = None, INFINITY
        if self._times:
            self._timer_due_s = self._times[0]
            self._timer = asyncio.get_running_loop().call_at(self._timer_due_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._times and self._times[0] <= now_s:
            for stream, behind in self._due.pop(heapq.heappop(self._times)):
                self.call_soon(stream, behind=behind)
        self._arm()


def _call(streams: dict[Callable[[], None], None], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    # One that is not done asks again, and comes after the others.
    while streams:
        stream = next(iter(streams))
        del streams[stream]
        stream()
        if loop.time() > end_s:
            return
