"""What runs next on the event loop.

`StreamScheduler` calls streams, `Timer` calls the driver when the engine is due, `in_turns` runs
the steps of long requests, and `IdleTask` runs work while the loop is idle.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from tidegate.conflation.steps import Result, Steps
from tidegate.keys.text.duration import Instant

# How long streams may write in one iteration of the event loop.
BUDGET_S: Final = 0.001

# A time that is further away than GROUPED_S is rounded up to a multiple of GROUP_S: waking the loop
# takes longer than a heartbeat, and a heartbeat may be so much late.
GROUPED_S: Final = 1.0
GROUP_S: Final = 0.05

# A loop is idle if it calls a timer at most LATE_S late.
IDLE_CHECK_S: Final = 0.005
LATE_S: Final = 0.002

INFINITY: Final = float("inf")


class StreamScheduler:
    """Calls the streams that have something to write, or are due.

    A flush wakes thousands of streams at once. They write for a millisecond in each iteration, so
    that requests do not wait for the whole flush. One timer serves all: idle streams, which wait
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
        """Call a stream in one of the next iterations, once however often this is asked.

        `behind`: after the others and for half of their time, for calls that may take long, such as
        those of streams with many subscriptions.
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
        """Call what wakes streams, and then these streams, in the current iteration.

        For a timer: another iteration costs a small flush as much as five of its writes.
        """
        is_called, self._is_called = self._is_called, True
        try:
            wake()
        finally:
            _call(self._ready, BUDGET_S)
            if not is_called:
                self._end_turn()

    def _turn(self) -> None:
        try:
            _call(self._ready, BUDGET_S)
            _call(self._behind, BUDGET_S / 2)  # at least one, however many others are ready
        finally:  # a stream that fails must not stop all others
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
            self._timer = asyncio.get_running_loop().call_at(self._timer_due_s, self._run_due)

    def _run_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._times and self._times[0] <= now_s:
            for stream, behind in self._due.pop(heapq.heappop(self._times)):
                self.call_soon(stream, behind=behind)
        self._arm()


def _call(streams: dict[Callable[[], None], None], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    # A stream that is not done calls `call_soon` again, and follows the others.
    while streams:
        stream = next(iter(streams))
        del streams[stream]
        stream()
        if loop.time() > end_s:
            return


class Timer:
    """Calls back once, at the time that was set last.

    Args:
        now: the clock, never running back.
        call: called with what it was set to; a loop may call a little early.
    """

    def __init__(self, now: Callable[[], Instant], call: Callable[[Instant], None]) -> None:
        self._now = now
        self._call = call
        self._handle: asyncio.Handle | None = None
        self._due: Instant | None = None

    def set(self, due: Instant | None) -> None:
        """Set the time, replacing the one before; past: at once, None: never."""
        if due == self._due:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self._due = None, due
        if due is None:
            return
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later((due - self._now()) / 1e9, self._fire, due)

    def _fire(self, due: Instant) -> None:
        self._handle, self._due = None, None
        self._call(due)


# One for each loop: tests run many loops, one after the other.
_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def in_turns(steps: Steps[Result]) -> Result:
    """Run steps one by one, and yield to the event loop after each; return their result.

    At most one step runs in an iteration, of all requests together: requests take turns.
    """
    turn = _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    while True:
        async with turn:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            await asyncio.sleep(0)


class IdleTask:
    """Runs work in steps while the event loop is idle, until none is left.

    Args:
        has_work: returns whether there is any.
        step: does a bounded part of it; returns False if it could do nothing.
    """

    def __init__(self, has_work: Callable[[], bool], step: Callable[[], bool]) -> None:
        self._has_work = has_work
        self._step = step
        self._check: asyncio.TimerHandle | None = None

    def schedule(self) -> None:
        """Wait for the loop to be idle, if there is work."""
        if self._check is None and self._has_work():
            loop = asyncio.get_running_loop()
            due_s = loop.time() + IDLE_CHECK_S
            self._check = loop.call_later(IDLE_CHECK_S, self._run_if_idle, due_s)

    def _run_if_idle(self, due_s: float) -> None:
        self._check = None
        is_idle = asyncio.get_running_loop().time() <= due_s + LATE_S
        if not is_idle or self._step():
            self.schedule()
