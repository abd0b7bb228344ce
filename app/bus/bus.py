"""The bus as one gateway has it: the store, what follows it, and a share of the duties."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from app.arrivals import Arrivals
from app.bus.connection import BusConnection
from app.bus.definitions import Definitions
from app.bus.follower import Follower
from app.bus.following import Following
from app.bus.lease import DUTIES, Lease
from app.bus.redis_store import RedisStore
from app.catalog import Catalog
from app.driver import Driver
from app.duty import Duty
from app.mergers import Mergers
from app.outage import Outage
from app.settings import Settings, SettingsInvalid


class Bus:
    """Made before the gateway's other parts, as it has their store; then it is attached to them.

    Raises:
        SettingsInvalid: the address or the prefix is none.
    """

    def __init__(self, url: str, settings: Settings, mergers: Mergers) -> None:
        try:
            self.connection = BusConnection(url, settings.redis_prefix)
        except ValueError as error:
            raise SettingsInvalid(f"redis: {error}") from None
        self.store = RedisStore(
            self.connection,
            settings,
            Definitions(self.connection, mergers),
            survives_power=settings.durability == "power",
        )
        self._running: list[asyncio.Task[None]] = []
        self._follower: Follower | None = None
        self._following: Following | None = None
        self._lease: Lease | None = None

    def attach(
        self,
        holder: str,
        catalog: Catalog,
        driver: Driver,
        arrivals: Arrivals,
        duty: Duty,
        outage: Outage,
    ) -> None:
        """Say what it is to keep in step; `holder` is the gateway's id."""
        following = Following(self.connection, self.store, catalog, arrivals)
        self._following, catalog.catch_up = following, following.catch_up
        self._follower = Follower(
            self.connection, self.store, catalog, driver, arrivals, following, outage
        )

        async def taken(number: int) -> None:
            duty.take(number)
            await catalog.begin_filling()

        async def lost() -> None:
            duty.give_up()
            await catalog.end_filling()

        catalog.doubt = self._follower.claim
        self._lease = Lease(
            self.connection, DUTIES, holder, taken=taken, lost=lost, clock=time.monotonic
        )

    async def open(self) -> None:
        """Follow from what the catalog has taken over."""
        assert self._follower is not None, "it is attached"
        assert self._following is not None, "it is attached"
        assert self._lease is not None, "it is attached"
        await self._follower.begin()
        self._start(self._follower.run(), "follow topics")
        self._start(self._following.run(), "follow definitions")
        self._start(self._lease.run(), "share duties")

    async def aclose(self) -> None:
        """Follow nothing any more, and leave duties to others; the store is closed by itself."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._lease is not None:
            await self._lease.give_back()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._running.append(asyncio.create_task(work, name=name))
