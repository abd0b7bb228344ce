"""The event loop's lag: how much later than asked for it calls."""

from __future__ import annotations

import asyncio

from app.figures import Histogram

LOOK_EVERY_S = 0.1


class LoopLag:
    """Has itself called ten times a second, and notes by how much that was too late.

    What holds the loop for longer than a pause is seen once, with all of its time but a pause.
    """

    def __init__(self, lags: Histogram) -> None:
        self._lags = lags
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        loop = asyncio.get_running_loop()
        due = loop.time() + LOOK_EVERY_S
        self._next = loop.call_at(due, self._look, due)

    def stop(self) -> None:
        """Look no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self, due: float) -> None:
        self._lags.note(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()
