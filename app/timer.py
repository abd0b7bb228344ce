"""A timer: one of the loop's, set to the engine's next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from conflation.duration import Instant


class Timer:
    """Rings once, at what it was last set to.

    Args:
        now: the clock, never running back.
        ring: called with what it was set to; a loop may call a little early.
    """

    def __init__(self, now: Callable[[], Instant], ring: Callable[[Instant], None]) -> None:
        self._now = now
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        self._due: Instant | None = None

    def set(self, due: Instant | None) -> None:
        """Ring then, at once if that is past, and no other time; None: not at all."""
        if due == self._due:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self._due = None, due
        if due is None:
            return
        loop = asyncio.get_running_loop()
        wait_ns = due - self._now()
        if wait_ns <= 0:
            self._handle = loop.call_soon(self._rung, due)
        else:
            self._handle = loop.call_later(wait_ns / 1e9, self._rung, due)

    def _rung(self, due: Instant) -> None:
        self._handle, self._due = None, None
        self._ring(due)
