"""The gateway: store, engine, driver, catalog and ingest, put together once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from fastapi import Request

from app.catalog import Catalog
from app.driver import Driver, wall_ms
from app.filler import Fillers
from app.ingest import Ingest
from app.mergers import Mergers
from app.sessions.registry import Sessions
from app.sessions.session import SUBSCRIPTIONS_MAX
from app.settings import Settings
from app.stores.memory import MemoryStore
from app.stores.store import Store
from app.sweeper import Sweeper
from app.writer import Writer
from conflation.duration import Instant
from conflation.engine import Engine
from conflation.outputs import CloseReason
from conflation.sessions.session import QueueLimits


@dataclass(slots=True)
class Gateway:
    """What the routes work with; `stopping` turns new streams away."""

    settings: Settings
    store: Store
    driver: Driver
    catalog: Catalog
    ingest: Ingest
    writer: Writer
    fillers: Fillers
    mergers: Mergers
    ready: bool = False
    stopping: bool = False
    sessions: Sessions = field(init=False)
    _sweeping: asyncio.Task[None] | None = None
    _telling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.sessions = Sessions(self)

    @classmethod
    def build(
        cls,
        settings: Settings,
        *,
        store: Store | None = None,
        clock: Callable[[], Instant] = time.monotonic_ns,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> Gateway:
        """Put the parts together; nothing runs yet.

        Args:
            settings: every limit.
            store: where messages are kept; by default one that keeps nothing.
            clock: monotonic ns, in step with the event loop's.
            wall_ms: wall time in ms of the epoch.

        Raises:
            SettingsInvalid: a merger that cannot be imported.
        """
        store = store or MemoryStore()
        engine = Engine(sessions_max=settings.sessions_max, subscriptions_max=SUBSCRIPTIONS_MAX)
        limits = QueueLimits(settings.queue_messages_max, settings.queue_bytes_max)
        driver = Driver(engine, limits, clock, wall_ms)
        writer = Writer(store, driver)
        fillers = Fillers(driver, writer)
        catalog = Catalog(store, driver, fillers, settings)
        return cls(
            settings, store, driver, catalog, Ingest(writer, driver, settings), writer, fillers,
            mergers=Mergers.load(settings.mergers),
        )  # fmt: skip

    async def open(self) -> None:
        """Take over what the store has; from then on requests are served."""
        sweeper = Sweeper(self.catalog, self.driver, self.writer)
        self.driver.on_expired = sweeper.note
        self._sweeping = asyncio.create_task(sweeper.run(), name="sweep")
        await self.store.open()
        await self.catalog.open()
        await self.sessions.topic.open()
        self._telling = asyncio.create_task(self.sessions.topic.run(), name="tell of sessions")
        self.ready = True

    async def aclose(self) -> None:
        """Let the store go."""
        self.ready = False
        self.sessions.aclose()
        await self.fillers.aclose()
        for task in (self._sweeping, self._telling):
            if task is not None:
                task.cancel()
        await self.store.aclose()

    def say_goodbye(self) -> None:
        """A shutdown begins: every stream is told, new ones are turned away."""
        self.stopping, self.ready = True, False
        self.driver.close_all(CloseReason.SHUTDOWN)

    def new_session_id(self) -> str:
        """Unguessable, safe in a path and an event id, and no option on a command line."""
        return f"s{secrets.token_urlsafe(12)}"


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves a request."""
    return cast("Gateway", request.app.state.gateway)
