"""The gateway: store, engine, driver, catalog and ingest, put together once."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fastapi import Request

from app.arrivals import Arrivals
from app.catalog import Catalog
from app.checkpoints import Checkpoints
from app.crew import Crew
from app.driver import Driver, wall_ms
from app.duty import Duty
from app.filler import Fillers
from app.ingest import Ingest
from app.mergers import Mergers
from app.outage import Outage
from app.pipelines import open_pipelines
from app.problems import Problem
from app.sessions.registry import Sessions
from app.settings import Settings
from app.stores.bounds import Bounds
from app.stores.memory import MemoryStore
from app.stores.sqlite import SqliteStore
from app.stores.store import Store
from app.sweeper import Sweeper
from app.topic_files import TopicFilesInvalid, read_topic_files
from app.topic_plan import Step, carry_out, plan_beside
from app.writer import Writer
from conflation.bookmark import Bookmark
from conflation.duration import Instant
from conflation.engine import Engine
from conflation.errors import EngineError
from conflation.outputs import CloseReason
from conflation.sessions.session import QueueLimits

if TYPE_CHECKING:
    from app.archive.archive import Archive
    from app.bus.bus import Bus
    from app.bus.neighbours import Neighbours

CATCH_UP_S_MAX = 1.0


@dataclass(slots=True)
class Gateway:
    """What the routes work with; `stopping` turns new streams away.

    `crew`: the workers at its address, if it is one of several.
    `id`: among gateways that share a bus; `neighbours` are the others there, if there is a bus.
    `declared`: what the folder of definitions changes at start, once the store is open.
    """

    settings: Settings
    store: Store
    driver: Driver
    catalog: Catalog
    ingest: Ingest
    writer: Writer
    fillers: Fillers
    mergers: Mergers
    arrivals: Arrivals
    duty: Duty
    bus: Bus | None = None
    archive: Archive | None = None
    ready: bool = False
    stopping: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    neighbours: Neighbours | None = None
    crew: Crew | None = None
    sessions: Sessions = field(init=False)
    outage: Outage = field(init=False)
    checkpoints: Checkpoints = field(init=False)
    declared: list[Step] = field(default_factory=list)
    _is_store_open: bool = False
    _checkpointing: asyncio.Task[None] | None = None
    _looking: asyncio.Task[None] | None = None
    _sweeping: asyncio.Task[None] | None = None
    _telling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.sessions = Sessions(self)
        self.checkpoints = Checkpoints(self.store, self.catalog, self.driver)
        self.outage = Outage("bus", self.driver.wall_ms, self.sessions.tell)
        if self.bus is not None:
            self.bus.attach(
                self.id, self.catalog, self.driver, self.arrivals, self.duty, self.outage
            )

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
            store: where messages are kept; by default what settings say.
            clock: monotonic ns, in step with the event loop's.
            wall_ms: wall time in ms of the epoch.

        Raises:
            SettingsInvalid: a merger that cannot be imported, an archive that cannot be read.
        """
        mergers = Mergers.load(settings.mergers)
        bus = _bus(settings, mergers) if store is None else None
        store = store or (_store(settings, mergers) if bus is None else bus.store)
        engine = Engine(
            sessions_max=settings.sessions_max,
            subscriptions_max=settings.session_subscriptions_max,
        )
        limits = QueueLimits(settings.queue_messages_max, settings.queue_bytes_max)
        driver = Driver(engine, limits, clock, wall_ms)
        arrivals, duty = Arrivals(driver), Duty(held=bus is None)
        writer = Writer(store, driver, None if bus is None else arrivals)
        fillers = Fillers(driver, writer, duty)
        catalog = Catalog(store, driver, fillers, settings)
        return cls(
            settings, store, driver, catalog, Ingest(writer, driver, settings), writer, fillers,
            mergers=mergers, arrivals=arrivals, duty=duty, bus=bus,
            archive=_archive(settings, catalog, driver),
        )  # fmt: skip

    async def open_store(self) -> None:
        """Reach the store, before anything else, and see what is declared beside what it has.

        A second call does nothing.

        Raises:
            StoreUnusable, TopicFilesInvalid: with one sentence for the operator.
        """
        if self._is_store_open:
            return
        await self.store.open()
        try:
            self.declared = await self._declared()
        except TopicFilesInvalid:
            await self.store.aclose()
            raise
        self._is_store_open = True

    async def open(self) -> None:
        """Take over what the store has; from then on requests are served.

        Raises:
            StoreUnusable, TopicFilesInvalid: with one sentence for the operator.
        """
        sweeper = Sweeper(self.catalog, self.driver, self.writer, self.duty)
        self.driver.on_expired = sweeper.note
        self._sweeping = asyncio.create_task(sweeper.run(), name="sweep")
        await self.open_store()
        await self.catalog.open()
        if self.bus is not None:
            await self.bus.open()
        await carry_out(self.declared, self.catalog)
        self._checkpointing = asyncio.create_task(self.checkpoints.run(), name="checkpoints")
        if self.archive is not None:
            self._looking = asyncio.create_task(self.archive.run(), name="look at the archive")
        await self.sessions.topic.open()
        await open_pipelines(self.catalog)
        self._telling = asyncio.create_task(self.sessions.topic.run(), name="tell of sessions")
        if self.neighbours is not None:
            await self.neighbours.open()
        self.ready = True

    async def aclose(self) -> None:
        """Let the store go."""
        self.ready = False
        if self.neighbours is not None:
            await self.neighbours.aclose()
        self.sessions.aclose()
        await self.fillers.aclose()
        if self.bus is not None:
            await self.bus.aclose()
        running = (self._sweeping, self._telling, self._checkpointing, self._looking)
        tasks = [it for it in running if it]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.archive is not None:
            self.archive.aclose()
        await self.checkpoints.write()
        await self.store.aclose()

    async def _declared(self) -> list[Step]:
        folder = self.settings.topics_dir
        if folder is None:
            return []
        declared = read_topic_files(Path(folder), self.mergers)
        for topic in declared:
            topic.check_options(self.settings.options_characters_max)
        return await plan_beside(self.store, declared, self.settings.topics_max)

    async def look_back(self, topic: str) -> None:
        """Have the engine know what an archive has of a topic, if there is one."""
        if self.archive is not None:
            await self.archive.look(topic)

    def say_goodbye(self) -> None:
        """A shutdown begins: every stream is told, new ones are turned away."""
        self.stopping, self.ready = True, False
        self.driver.close_all(CloseReason.SHUTDOWN)

    def new_session_id(self) -> str:
        """Unguessable, safe in a path and an event id, and no option on a command line."""
        random = f"s{secrets.token_urlsafe(12)}"
        return random if self.neighbours is None else f"{self.id}.{random}"

    async def bring(self, session_id: str, number: int | None) -> bool:
        """Have a session here that another gateway has, for a reader that has seen this number.

        False: the reader was told that its place is taken, and is not let in again.

        Raises:
            Problem: bus-unavailable, limit-reached.
        """
        if self.neighbours is None or self.neighbours.has(session_id):
            return True
        is_let_in = await self.neighbours.bring(session_id, number)
        if session_id in self.sessions:
            cursor = self.sessions.get(session_id).cursor
            seen = {} if cursor is None else cursor.marks(cursor.number) or {}
            places = ((topic, mark) for (_, topic), mark in seen.items() if mark is not None)
            await asyncio.gather(*(self.catch_up(topic, mark) for topic, mark in places))
        return is_let_in

    async def catch_up(self, topic: str, seen: Bookmark) -> None:
        """Wait until there is here what a reader has seen at another gateway, for a while.

        What does not come in time is continued as any place that is not known; what nobody can
        have given since the start shows that the store has gone back (rule 602).
        """
        if self.bus is not None:
            with contextlib.suppress(TimeoutError, Problem, EngineError):
                async with asyncio.timeout(CATCH_UP_S_MAX):
                    await self.arrivals.reached(topic, seen.epoch, seen.offset)
        with contextlib.suppress(Problem, EngineError):  # the topic is gone, or the store is out
            await self.catalog.heed_place(topic, seen)


def _bus(settings: Settings, mergers: Mergers) -> Bus | None:
    """The bus that settings name; without one nothing of it is loaded."""
    if settings.redis is None:
        return None
    from app.bus.bus import Bus

    return Bus(settings.redis, settings, mergers)


def _archive(settings: Settings, catalog: Catalog, driver: Driver) -> Archive | None:
    """The archive that settings name; without one nothing of it is loaded."""
    if settings.archive is None:
        return None
    from app.archive.archive import Archive

    return Archive(Path(settings.archive), catalog, driver)


def _store(settings: Settings, mergers: Mergers) -> Store:
    """The store that settings name."""
    if settings.keeps_nothing:
        return MemoryStore(Bounds.of(settings))
    survives_power = settings.durability == "power"
    return SqliteStore(
        Path(settings.store_dir),
        survives_power=survives_power,
        mergers=mergers,
        bounds=Bounds.of(settings),
    )


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves a request."""
    return cast("Gateway", request.app.state.gateway)
