"""One gateway's part in the cluster: the shared store, its log reader, and the leader lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.definition_sync import DefinitionSync
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.cluster.log_reader import TopicLogReader
from tidegate.app.cluster.membership import Lease
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.settings.settings import Settings, SettingsInvalid
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.outage import Outage
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.leadership import Leadership


class Cluster:
    """The cluster connection and store of one gateway.

    The gateway needs the store before its other parts exist, so `attach` passes those in later.

    Raises:
        SettingsInvalid: the address or the prefix is malformed.
    """

    def __init__(
        self, url: str, settings: Settings, mergers: Mergers, wall_ms: Callable[[], int]
    ) -> None:
        try:
            self.connection = BusConnection(url, settings.redis_prefix, wall_ms)
        except ValueError as error:
            raise SettingsInvalid(f"redis: {error}") from None
        self.store = RedisStore(self.connection, settings, Definitions(self.connection, mergers))
        self._tasks: list[asyncio.Task[None]] = []
        self._log_reader: TopicLogReader | None = None
        self._definition_sync: DefinitionSync | None = None
        self._lease: Lease | None = None

    def attach(
        self,
        holder: str,
        catalog: Catalog,
        driver: Driver,
        append_waiters: AppendWaiters,
        leadership: Leadership,
        outage: Outage,
    ) -> None:
        """Connect the parts that the cluster keeps in step; `holder` is this gateway's id."""
        definition_sync = DefinitionSync(self.connection, self.store, catalog, append_waiters)
        self._definition_sync, catalog.catch_up = definition_sync, definition_sync.catch_up
        self._log_reader = TopicLogReader(
            self.connection,
            self.store,
            catalog,
            driver,
            append_waiters,
            definition_sync.restore,
            definition_sync.restart_topic,
            outage,
        )
        self._lease = Lease(
            self.connection,
            holder,
            on_acquired=leadership.take,
            on_lost=leadership.give_up,
            clock=time.monotonic,
        )

    async def open(self) -> None:
        """Start to follow topics and definitions from the catalog's restored state."""
        assert self._log_reader is not None, "call attach first"
        assert self._definition_sync is not None, "call attach first"
        assert self._lease is not None, "call attach first"
        # Before the tasks start: a topic with an outdated epoch must not serve a single read.
        await self._log_reader.open()
        self._start(self._log_reader.run(), "follow topics")
        self._start(self._definition_sync.run(), "follow definitions")
        self._start(self._lease.run(), "hold the leader lease")

    async def aclose(self) -> None:
        """Stop following and give up the leader lease; the gateway closes the store itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # After its task has ended, which could otherwise acquire the lease again.
        if self._lease is not None:
            await self._lease.release()

    def _start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(coroutine, name=name))
