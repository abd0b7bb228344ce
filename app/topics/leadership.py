"""Whether this gateway is the leader, which does some work for all gateways."""

from __future__ import annotations

import asyncio


class Leadership:
    """This gateway's part as the leader, which expires records and fills derived topics for all.

    `fence` is the number of the leader's lease: a store refuses writes with an older one. None
    without other gateways.
    """

    def __init__(self, *, held: bool) -> None:
        self.fence: int | None = None
        self._held = asyncio.Event()
        if held:
            self._held.set()

    @property
    def is_held(self) -> bool:
        """True while this gateway is the leader."""
        return self._held.is_set()

    async def begins(self) -> None:
        """Wait until this gateway is the leader."""
        await self._held.wait()

    def take(self, fence: int) -> None:
        """Become the leader, with this fence."""
        self.fence = fence
        self._held.set()

    def give_up(self) -> None:
        """Stop being the leader."""
        self._held.clear()
