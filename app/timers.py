"""Timing on the event loop: the engine's next deadline, work in idle time, pauses of retries."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from tidegate.conflation.steps import Result, Steps
from tidegate.keys.text.duration import Instant

# A loop that calls at most LATE_S after the time that it was given has nothing else to do.
LOOK_S = 0.005
LATE_S = 0.002


def wall_ms() -> int:
    """Return wall time in milliseconds of the epoch, as messages are stamped."""
    return time.time_ns() // 1_000_000


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

    At most one step runs in an iteration, whichever request it belongs to: requests take turns.
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
    """Does work step by step while the loop is idle, until none is left.

    Args:
        has_work: whether there is.
        step: a bounded part of it; False where there was nothing that could be done.
    """

    def __init__(self, has_work: Callable[[], bool], step: Callable[[], bool]) -> None:
        self._has_work = has_work
        self._step = step
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_looking(self) -> bool:
        """True while it waits for idle time."""
        return self._look is not None

    def look(self) -> None:
        """Look for idle time if there is work."""
        if self._look is None and self._has_work():
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(LOOK_S, self._looked, loop.time() + LOOK_S)

    def _looked(self, due_s: float) -> None:
        self._look = None
        is_idle = asyncio.get_running_loop().time() <= due_s + LATE_S
        if not is_idle or self._step():
            self.look()


class Backoff:
    """Pauses of a background task that tries again for ever, and how loud its failures are.

    A pause doubles with each failure in a row, from `first_s` to `most_s`. The jitter keeps
    gateways that lost one Redis from coming back in step; a pause of constant length has none.

    Args:
        first_s: the longest first pause.
        most_s: the longest pause at all; by default `first_s`, for a constant pause.
        chance: draws from a range; for tests.
    """

    def __init__(
        self,
        first_s: float,
        most_s: float | None = None,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._failures = 0

    @property
    def level(self) -> int:
        """The level to log a failure at: only the first in a row is a warning."""
        return logging.DEBUG if self._failures else logging.WARNING

    def succeeded(self) -> None:
        """Begin anew: the next failure is a first one."""
        self._failures = 0

    def next_s(self) -> float:
        """Count a failure, and return the seconds to pause."""
        # The exponent is bounded because an outage may last for days, and floats end at 2**1024.
        doubled_s = self._first_s * 2.0 ** min(self._failures, 60)
        self._failures += 1
        if self._most_s is None:
            return self._first_s
        return min(doubled_s, self._most_s) * self._chance(0.5, 1.0)

    async def pause(self) -> None:
        """Count a failure, and wait before the next attempt."""
        await asyncio.sleep(self.next_s())
