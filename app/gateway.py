"""The gateway: the one place that knows all parts, and gives each what it uses."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.app.access.audit import AuditLog
from tidegate.app.access.grants import ADMIN, WRITE, Subject
from tidegate.app.access.limits.quota import Quotas
from tidegate.app.cluster.workers import WorkerGroup
from tidegate.app.definitions.files import TopicFilesInvalid, read_topic_files
from tidegate.app.definitions.mergers import Mergers, MergersInvalid
from tidegate.app.names import TopicPattern
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.settings.settings import Settings, SettingsInvalid
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import Bounds, Store, StoreAway, StoreUnusable
from tidegate.app.streams.decisions import SessionContext
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.outage import Outage
from tidegate.app.streams.polled import PolledStreams
from tidegate.app.streams.registry import Sessions
from tidegate.app.streams.session import Session
from tidegate.app.timers import wall_ms
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.checkpoints import Checkpoints
from tidegate.app.topics.derived import DerivedTopics
from tidegate.app.topics.expiry import Expiry
from tidegate.app.topics.ingest import Ingest
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.plan import Step, carry_out, plan_beside
from tidegate.app.topics.system_topics import AUDIT, EventTopic, SessionsTopic, open_own
from tidegate.app.topics.writer import Writer
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.outputs import CloseReason
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.errors import Refusal
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

if TYPE_CHECKING:  # loaded only where settings ask for them: redis and pyarrow are optional
    from tidegate.app.archive.archive import Archive
    from tidegate.app.cluster.cluster import Cluster
    from tidegate.app.cluster.connection import BusConnection
    from tidegate.app.cluster.peers import AnswerCall, Peers

CATCH_UP_S_MAX = 1.0
BROUGHT_MAX = 3
"""How many times a session is fetched for one reader, while others fetch it too."""
STORE_S_MAX = 2.0


@dataclass(slots=True)
class Gateway:
    """The parts of one gateway, as routes use them; `stopping` turns new streams away.

    `worker_group`: the workers at its address, if it is one of several. `id`: among gateways that
    share a bus; `peers`: the other gateways, if there is a bus. `declared`: what the folder of
    definitions changes at start, once the store is open.
    """

    settings: Settings
    store: Store
    driver: Driver
    catalog: Catalog
    ingest: Ingest
    writer: Writer
    mergers: Mergers
    arrivals: AppendWaiters
    leadership: Leadership
    bus: Cluster | None = None
    archive: Archive | None = None
    ready: bool = False
    stopping: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    peers: Peers | None = None
    worker_group: WorkerGroup | None = None
    sessions: Sessions = field(init=False)
    polled: PolledStreams = field(init=False)
    outage: Outage = field(init=False)
    checkpoints: Checkpoints = field(init=False)
    quotas: Quotas = field(init=False)
    audit: AuditLog = field(init=False)
    audit_topic: EventTopic = field(init=False)
    session_events: SessionsTopic = field(init=False)
    declared: list[Step] = field(default_factory=list)
    _is_store_open: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog.filling.look_back_by(self.look_back)
        self.quotas = Quotas(self.settings, self.driver.now)
        self.checkpoints = Checkpoints(self.store, self.catalog, self.driver)
        self.audit_topic = EventTopic(AUDIT, self.catalog, self.writer)
        audited = self.settings.audit_log, self.audit_topic.publish, self.driver.wall_ms, self.id
        self.audit = AuditLog(*audited)
        self.outage = Outage("bus", self.driver.wall_ms, self._notify_streams)
        context = SessionContext(
            self.id, self.settings, self.driver, self.catalog, self.outage, self.quotas
        )
        self.session_events = SessionsTopic(self.catalog, self.writer)
        self.sessions = Sessions(context, self.session_events, self.new_session_id)
        self.polled = PolledStreams(context)
        self.driver.make_room = self.polled.make_room
        self.quotas.lanes.make_room = self.polled.make_room
        self.quotas.memory.cut_stalled = self.sessions.cut_stalled
        if self.bus is not None:
            self.bus.attach(
                self.id, self.catalog, self.driver, self.arrivals, self.leadership, self.outage
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
        """Assemble the parts; nothing runs yet.

        Args:
            settings: every limit.
            store: keeps the messages; by default the one that the settings name.
            clock: monotonic ns, in step with the event loop's.
            wall_ms: wall time in ms of the epoch; on a bus, all go by that of Redis.

        Raises:
            SettingsInvalid: a merger that cannot be imported, an archive that cannot be read.
        """
        try:
            mergers = Mergers.load(settings.mergers)
        except MergersInvalid as error:
            raise SettingsInvalid(f"mergers: {error}") from None
        # A store that is given replaces the bus, too: tests give one.
        bus = _bus(settings, mergers, wall_ms) if store is None else None
        store = store or (_store(settings, mergers) if bus is None else bus.store)
        engine = Engine(
            sessions_max=settings.sessions_max,
            subscriptions_max=settings.session_subscriptions_max,
            keys_max=settings.subscription_keys_max,
            in_steps=True,
        )
        limits = QueueLimits(settings.queue_messages_max, settings.queue_bytes_max)
        # Of gateways whose clocks differ, one would remove what another has just published.
        driver = Driver(
            engine, limits, clock, wall_ms if bus is None else bus.connection.clock.now_ms
        )
        arrivals, leadership = AppendWaiters(driver), Leadership(held=bus is None)
        writer = Writer(store, driver, None if bus is None else arrivals)
        derived_topics = DerivedTopics(driver, writer, arrivals, leadership)
        catalog = Catalog(store, driver, derived_topics, settings, mergers)
        return cls(
            settings, store, driver, catalog, Ingest(writer, driver, settings), writer,
            mergers=mergers, arrivals=arrivals, leadership=leadership, bus=bus,
            archive=_archive(settings, catalog, driver),
        )  # fmt: skip

    def share_sessions(self, bus: BusConnection, handle: AnswerCall) -> Peers:
        """Share sessions with the other gateways on a bus; `handle` answers their requests.

        Called before `open`: the ids of sessions say from then on which gateway opened them.
        """
        from tidegate.app.cluster.peers import Peers
        from tidegate.app.cluster.session_locations import SessionRowCleanup

        self.peers = Peers(
            bus, self.id, self.sessions, handle, self.settings, self.catalog.catch_up
        )
        self.peers.set_cleanup(
            SessionRowCleanup(
                self.peers.membership,
                self.peers.locations,
                self.catalog,
                self.driver,
                self.writer,
                self.leadership,
                self.sessions.__contains__,
            )
        )
        return self.peers

    async def open_store(self) -> None:
        """Open the store, and compare it with the declared topics; a second call does nothing.

        Raises:
            StoreUnusable, TopicFilesInvalid: with one sentence for the operator.
        """
        if self._is_store_open:
            return
        async with self._closing_at_refusal():
            await self.store.open()
            try:
                self.declared = await self._declared()
            except TopicFilesInvalid:  # nothing has changed yet, and the folder's lock must go
                await self.store.aclose()
                raise
        self._is_store_open = True

    async def open(self) -> None:
        """Load the store's topics and start the background tasks; then requests are served.

        A second call does nothing.

        Raises:
            StoreUnusable, TopicFilesInvalid: with one sentence for the operator.
        """
        if self.ready:
            return
        async with self._closing_at_refusal():
            await self._open()

    @contextlib.asynccontextmanager
    async def _closing_at_refusal(self) -> AsyncIterator[None]:
        """Close the store if it refuses something during the start.

        Raises:
            StoreUnusable: with the refusal, a sentence for the operator.
        """
        try:
            yield
        except Refused as refusal:  # a page of the file is damaged, or the bus has gone away
            with contextlib.suppress(Refused):
                await self.store.aclose()
            # A bus that has gone away may be back for the next start; a damaged file stays damaged.
            is_away = self.bus is not None and isinstance(refusal, Unavailable)
            raise (StoreAway if is_away else StoreUnusable)(refusal.detail) from None

    async def _open(self) -> None:
        expiry = Expiry(self.catalog, self.driver, self.writer, self.leadership)
        # Before the store opens: restored topics report what has expired meanwhile.
        self.driver.on_expired = expiry.note
        self._start(expiry.run(), "expire records")
        await self.open_store()
        if self.bus is not None:
            await self.bus.store.settle_epochs()
        # Before the bus reads on: it continues each topic from the head that is loaded here.
        await self.catalog.open()
        if self.bus is not None:
            await self.bus.open()
        await open_own(self.catalog, asks_for_tokens=self.settings.auth_keys is not None)
        self.catalog.start_filling()  # now that every source is there
        await carry_out(self.declared, self.catalog)
        # Behind the load, or a first checkpoint would replace the one that is being read.
        self._start(self.checkpoints.run(), "checkpoints")
        if self.archive is not None:
            self._start(self.archive.run(), "look at the archive")
        self._start(self.session_events.run(), "publish session events")
        self._start(self.audit_topic.run(), "publish audit events")
        self._start(self.audit.run(), "write the audit log")
        if self.peers is not None:
            await self.peers.open()
        self.ready = True

    async def aclose(self) -> None:
        """Stop the background tasks, write a last checkpoint, and close the store."""
        self.ready = False
        # First of all: sessions are handed over while everything they need still runs.
        if self.peers is not None:
            await self.peers.aclose()
        self.sessions.stop_timers()
        self.polled.close()
        await self.catalog.filling.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.audit.write()  # the last second of it
        await self.audit_topic.aclose()
        await self.session_events.aclose()
        if self.bus is not None:
            await self.bus.aclose()
        if self.archive is not None:
            self.archive.aclose()
        # After every writer has stopped, so that the next start has no journal to apply.
        await self.checkpoints.write()
        await self.store.aclose()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        # Kept: the loop holds its tasks weakly, so one that nobody holds may vanish.
        self._tasks.append(asyncio.create_task(work, name=name))

    def _notify_streams(self, notice: bytes) -> None:
        # The outage and the sessions need each other, so this one is looked up when it is needed.
        self.sessions.broadcast(notice)

    async def _declared(self) -> list[Step]:
        folder = self.settings.topics
        if folder is None:
            return []
        declared = read_topic_files(Path(folder), self.mergers)
        for topic in declared:
            topic.check_options(self.settings.options_characters_max)
        return await plan_beside(self.store, declared, self.settings, self.mergers)

    async def unready(self) -> str | None:
        """Return why the gateway should get no traffic, or None.

        The store is asked each time, so that the reply is current.
        """
        if not self.ready:
            return "it is shutting down" if self.stopping else "the store has not answered yet"
        if self.outage.is_on:
            return f"the {self.outage.source} is out"
        try:
            async with asyncio.timeout(STORE_S_MAX):
                return await self.store.fault()
        except TimeoutError:
            return "the store does not answer in time"

    def live_session(self, session_id: str) -> Session:
        """Return a session that has not ended.

        Raises:
            Refused: session-unknown.
        """
        found = self.sessions.get(session_id)
        if found.has_ended:  # it is kept for a while, so that clients can read why it ended
            raise Refused("session-unknown", "The session has ended.")
        return found

    async def seek(self, target: str | TopicPattern, place: object, *, by: Subject | None) -> None:
        """Look for the topic of a subscription, which may just have been made at another gateway.

        A pattern takes what is there, and later what comes.

        Raises:
            Refused: bus-unavailable, as nothing is known of the topic then.
        """
        if isinstance(target, str):
            await self.catalog.seek(target)
            await self.reach(target, place, by=by)

    async def reach(self, topic: str, *places: object, by: Subject | None) -> None:
        """Wait until this gateway has what readers at these places need; None is no place.

        A bookmark may come from another gateway, and ask for what only the archive has.
        """
        for place in places:
            if isinstance(place, Bookmark):
                await self.catch_up(topic, place, by=by)
        if any(place is not None for place in places):
            await self.look_back(topic)

    async def look_back(self, topic: str) -> None:
        """Let the engine know what the archive has of a topic, if there is an archive."""
        if self.archive is not None:
            await self.archive.refresh(topic)

    def say_goodbye(self) -> None:
        """Begin a shutdown: close every stream with a goodbye, and turn new ones away."""
        # First: a request that is under way must open no stream after the others have closed.
        self.stopping, self.ready = True, False
        self.driver.close_all(CloseReason.SHUTDOWN)

    def new_session_id(self) -> str:
        """Return an unguessable id, safe in a path, an event id and a command line."""
        # 96 bits: the id is all that a reader needs to take a session over.
        random = f"s{secrets.token_urlsafe(12)}"
        return random if self.peers is None else f"{self.id}.{random}"

    async def bring(self, session_id: str, number: int | None, subject: Subject | None) -> bool:
        """Fetch a session from another gateway, for a reader that has seen this number.

        Return False for a reader whose stream ended with REPLACED: it is not let in again.

        Raises:
            Refused: bus-unavailable, as for a reader that asked before the present one came;
                limit-reached.
        """
        if self.peers is None or self.peers.has(session_id):
            return True
        sub = None if subject is None else subject.sub
        asked_ms = self.driver.wall_ms()
        for _ in range(BROUGHT_MAX):
            if not await self.peers.bring_here(session_id, number, sub, asked_ms):
                return False
            if session_id not in self.sessions:
                return True  # it does not exist, and the route will say so
            cursor = self.sessions.get(session_id).cursor
            seen = {} if cursor is None else cursor.marks(cursor.number) or {}
            places = ((topic, mark) for (_, topic), mark in seen.items() if mark is not None)
            await asyncio.gather(
                *(self.catch_up(topic, mark, by=subject) for topic, mark in places)
            )
            # Looked at last: while this gateway catches up, another one may take the session, and a
            # reader that is attached to it then would be served as well as the one over there.
            if self.peers.has(session_id):
                session = self.sessions.get(session_id)
                # The client may have given this request up for that of the present reader, which
                # would be closed with REPLACED and not admitted again.
                if session.reader is not None and session.attached_ms > asked_ms:
                    break
                return True
        raise Unavailable("Several readers ask for the session; try again.")

    async def catch_up(self, topic: str, seen: Bookmark, *, by: Subject | None) -> None:
        """Wait a while until this gateway has what a reader has seen at another one.

        Without a bus, a bookmark that cannot have been given since the start shows that the store
        has gone back (rule cluster-5). Of a subject that is believed only if it may change the
        topic: it restarts the topic.

        Raises:
            Refused: bus-unavailable; only the bus has what the reader has seen, so a snapshot would
                take the reader back.
        """
        if self.bus is not None:
            try:
                await self._catch_up_with_bus(topic, seen)
            except TopicUnknown:
                # Deleted elsewhere, it stays here for a moment, perhaps behind the reader.
                if self.catalog.exists(topic):
                    raise Unavailable("The topic was just deleted; try again.") from None
            return
        if by is not None and not (by.grants.may(WRITE, topic) or by.grants.may(ADMIN, topic)):
            return
        with contextlib.suppress(Refusal):  # the topic is gone, or the store is out
            await self.catalog.check_bookmark(topic, seen)

    async def _catch_up_with_bus(self, name: str, seen: Bookmark) -> None:
        until_s = asyncio.get_running_loop().time() + CATCH_UP_S_MAX
        # Also for a reader who has seen what is lost, and begins again: up to there it is ours.
        place = self.driver.engine.topic(name).in_common(seen)
        await self._wait_reached(name, place, until_s)
        topic = self.driver.engine.topic(name)
        if place.epoch == topic.epoch and topic.head >= place.offset:
            return
        # Refuses the reader also while the topic is in an epoch that is not known here yet.
        shared = await self.arrivals.shared_head(name, None)
        # Decided again: the topic may have begun another epoch meanwhile, which continues the
        # reader's. A reader of none that is known gets a snapshot of all that the bus has.
        topic = self.driver.engine.topic(name)
        place = topic.in_common(seen)
        needed = min(place.offset, shared) if place.epoch == topic.epoch else shared
        await self._wait_reached(name, Bookmark(topic.epoch, needed), until_s)
        if self.driver.engine.topic(name).head < needed:
            raise Unavailable(
                "This gateway is behind what the reader has seen; try again or at another gateway."
            )

    async def _wait_reached(self, topic: str, place: Bookmark, until_s: float) -> None:
        with contextlib.suppress(TimeoutError, Refused):
            async with asyncio.timeout_at(until_s):
                await self.arrivals.wait_reached(topic, place.epoch, place.offset)


def _bus(settings: Settings, mergers: Mergers, wall_ms: Callable[[], int]) -> Cluster | None:
    """Connect the bus that settings name; without one its modules are not loaded."""
    if settings.redis is None:
        return None
    from tidegate.app.cluster.cluster import Cluster

    return Cluster(settings.redis, settings, mergers, wall_ms)


def _archive(settings: Settings, catalog: Catalog, driver: Driver) -> Archive | None:
    """Open the archive that settings name; without one its modules are not loaded."""
    if settings.archive is None:
        return None
    from tidegate.app.archive.archive import Archive

    return Archive(Path(settings.archive), catalog, driver)


def _store(settings: Settings, mergers: Mergers) -> Store:
    """Return the store that settings name."""
    if settings.keeps_nothing:
        return MemoryStore(Bounds.of(settings))
    return SqliteStore(
        Path(settings.store_dir), survives_power=settings.durability == "power",
        mergers=mergers, limits=Bounds.of(settings),
    )  # fmt: skip
