"""A duty: what one gateway does for all that share a store - expiry, and filling topics."""

from __future__ import annotations

import asyncio


class Duty:
    """Whether it is this gateway's turn.

    `fence` is the number of its lease, by which a store refuses what it writes once another has
    taken over; None where it shares with nobody.
    """

    def __init__(self, *, held: bool) -> None:
        self.fence: int | None = None
        self._held = asyncio.Event()
        if held:
            self._held.set()

    @property
    def is_held(self) -> bool:
        """Whether this gateway does it."""
        return self._held.is_set()

    async def begins(self) -> None:
        """Until this gateway does it."""
        await self._held.wait()

    def take(self, fence: int) -> None:
        """It is this gateway's turn, under this number."""
        self.fence = fence
        self._held.set()

    def give_up(self) -> None:
        """It is another's, or nobody's."""
        self._held.clear()
