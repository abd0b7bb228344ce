"""The simulation of one seed: a gateway on a virtual loop, its publishers, clients, troubles."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from unittest import mock

from fastapi import FastAPI

from tests.simulation.client import Application, Client
from tests.simulation.ledger import OWN, EpochLedger, LedgerStore
from tests.simulation.plan import CALM_NS, Plan, PublisherPlan, Step, TopicPlan
from tests.support.clocks.virtual_loop import SECOND, VirtualLoop, virtual_loop
from tests.support.servers import edge_settings
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.gateway import Gateway
from tidegate.app.http.application import create_app
from tidegate.app.refusals import Refused
from tidegate.app.topics.ingest import BodyForm
from tidegate.conflation.errors import EngineError
from tidegate.conflation.frame import Frame, RemovalReason
from tidegate.conflation.outputs import CloseReason
from tidegate.conflation.sessions.accounting import EngineStats, SessionStats
from tidegate.keys.text.duration import Instant

LINES = BodyForm(lined=True)
LOOK_EVERY = 4
WALL_MS = 1_800_000_000_000
"""The wall clock at the beginning of a simulation."""


@functools.cache
def application() -> FastAPI:
    """One for all simulations: a request asks it for the gateway."""
    return create_app(edge_settings())


@dataclass(slots=True, eq=False)
class Record:
    """All that was seen of a simulation, for the checks."""

    plan: Plan
    clients: list[Client]
    ledgers: dict[str, EpochLedger]
    epochs: dict[str, str] = field(default_factory=dict)
    settled_ns: int = 0
    calm_ns: int = 0
    stats: EngineStats | None = None
    sessions: dict[str, SessionStats] = field(default_factory=dict)
    final_stats: EngineStats | None = None
    complaints: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Every byte that was written, by whom and when."""
        found = hashlib.blake2b(digest_size=16)
        for client in self.clients:
            for connection in client.connections:
                found.update(
                    f"{client.plan.number} {connection.began_ns} {connection.status}\n".encode()
                )
                for sent in connection.socket.sents:
                    found.update(f"{sent.asked_ns} {sent.wrote_ns} ".encode() + sent.text)
        return found.hexdigest()


class Simulation:
    """One run of a plan."""

    def __init__(self, plan: Plan, loop: VirtualLoop) -> None:
        settings = edge_settings(**plan.settings)
        self.plan = plan
        self.loop = loop
        self.settings = settings
        high_bytes = settings.write_buffer_bytes_max
        self.clients = [Client(client, loop, high_bytes) for client in plan.clients]
        self.record = Record(plan, self.clients, {})
        self.serial = 0
        self.wall_shift_ms = 0

    async def run(self) -> Record:
        """The whole of it: noise, calm, the end."""
        await self._build()
        for at_ns, shift_ms in self.plan.wall_steps:
            self.loop.call_at_ns(at_ns, self._step_wall, shift_ms)
        living = [
            asyncio.create_task(client.live(self._door, self.plan.faults_end_ns))
            for client in self.clients
        ]
        self.loop.call_at_ns(self.plan.faults_end_ns, self._heal)
        async with asyncio.TaskGroup() as noise:
            for publisher in self.plan.publishers:
                noise.create_task(self._publish_all(publisher))
            for at_ns, trouble in self.plan.troubles:
                noise.create_task(self._make_trouble(at_ns, trouble))
        self._heal()
        self.record.calm_ns = self.loop.now_ns
        await asyncio.sleep(CALM_NS / SECOND)
        self._look()
        for task in living:
            task.cancel()
        for client in self.clients:
            client.leave()
        await asyncio.sleep(1)
        await self._look_back()
        return self.record

    # The gateway

    async def _build(self) -> None:
        store = LedgerStore()
        store.ledgers = self.record.ledgers
        self.gateway = Gateway.build(
            self.settings, store=store, clock=lambda: self.loop.now_ns, wall_ms=self._wall_ms
        )
        self._note_times(self.gateway)
        application().state.gateway = self.gateway
        self.serial += 1
        await self.gateway.open()
        for topic in self.plan.topics:
            await self._define(topic)

    def _door(self) -> tuple[Application, int]:
        return application(), self.serial

    async def _define(self, topic: TopicPlan) -> None:
        document = TopicDefinition.parse(json.dumps(topic.document).encode(), Mergers())
        entry, _ = await self.gateway.catalog.put(topic.name, document)
        epoch = entry.record.epoch
        self.record.ledgers.setdefault(epoch, EpochLedger(topic.name, epoch))
        self.record.epochs[topic.name] = epoch

    def _note_times(self, gateway: Gateway) -> None:
        """When the engine takes each message in, the ledger notes it."""
        engine = gateway.driver.engine
        publish = engine.publish

        def noted(topic_name: str, frames: Sequence[Frame], now: Instant) -> None:
            if not topic_name.startswith(OWN):
                entries = self.record.ledgers[engine.topic(topic_name).epoch].entries
                for frame in frames:
                    entries[frame.offset - 1].at_ns = self.loop.now_ns
            publish(topic_name, frames, now)
            if frames[-1].offset % LOOK_EVERY == 0:
                self._check_bounds()

        engine.publish = noted  # type: ignore[method-assign]  # an observer in between

    def _wall_ms(self) -> int:
        return WALL_MS + self.loop.now_ns // 1_000_000 + self.wall_shift_ms

    def _step_wall(self, shift_ms: int) -> None:
        self.wall_shift_ms += shift_ms

    # What happens

    def _heal(self) -> None:
        if self.loop.now_ns >= self.plan.faults_end_ns:
            for client in self.clients:
                client.heal()

    async def _publish_all(self, publisher: PublisherPlan) -> None:
        for act in publisher.acts:
            await asyncio.sleep(act.wait_ns / SECOND)
            with contextlib.suppress(EngineError, Refused):  # the topic is away
                await self._act(publisher.topic, act)

    async def _act(self, topic: str, act: Step) -> None:
        gateway = self.gateway
        entry = gateway.catalog.get(topic)
        if act.deletes:
            sow = gateway.driver.engine.topic(topic).sow
            assert sow is not None
            found = [sow.board.get(json.dumps([own])) for own in act.deletes]
            there = [frame for frame in found if frame is not None]
            await gateway.writer.remove(entry, there, RemovalReason.DELETED)
            return
        texts = [json.dumps(value, separators=(",", ":")).encode() for value in act.values]
        checked = await gateway.ingest.check(entry, b"\n".join(texts), LINES)
        appended = await gateway.ingest.publish(entry, checked, None)
        ledger = self.record.ledgers[entry.record.epoch]
        written = [one.text.encode() for one in ledger.after(appended.first - 1, appended.last)]
        if written != texts:
            self.record.complaints.append(f"I1: {topic}: what was published is not what was kept")

    async def _make_trouble(self, at_ns: int, trouble: str) -> None:
        await asyncio.sleep(at_ns / SECOND)
        match trouble.split():
            case ["goodbye"]:
                self.gateway.driver.close_all(CloseReason.SHUTDOWN)
            case ["restart"]:
                self.gateway.say_goodbye()
                await asyncio.sleep(self.settings.shutdown_grace.seconds)
                self._abort_all()
                await self.gateway.aclose()
                await self._build()
            case ["again", name]:
                await self.gateway.catalog.delete(name)
                await asyncio.sleep(0.2)
                await self._define(self.plan.topic(name))

    def _abort_all(self) -> None:
        for client in self.clients:
            if client.connections and client.connections[-1].ended_ns is None:
                client.connections[-1].socket.abort()

    # What is seen

    def _check_bounds(self) -> None:
        """I5: no queue is longer than it may be."""
        for session in list(self.gateway.driver._consumers):
            with contextlib.suppress(EngineError):
                figures = self.gateway.driver.engine.session_stats(session)
                if (
                    figures.queued_messages > self.settings.queue_messages_max
                    or figures.queued_bytes > self.settings.queue_bytes_max
                ):
                    self.record.complaints.append(f"I5: a queue of {figures.queued_messages}")

    def _look(self) -> None:
        """All is quiet: what the engine says of itself."""
        engine = self.gateway.driver.engine
        self.record.settled_ns = self.loop.now_ns
        self.record.stats = engine.stats()
        for session in list(self.gateway.driver._consumers):
            with contextlib.suppress(EngineError):
                self.record.sessions[session] = engine.session_stats(session)

    async def _look_back(self) -> None:
        """Everybody has left: nothing may be left of them."""
        record = self.record
        record.final_stats = self.gateway.driver.engine.stats()
        record.complaints += [str(failure) for failure in self.loop.failures]
        for client in self.clients:
            for task in client.serving:
                if not task.done():
                    record.complaints.append(f"I20: client {client.plan.number}: a request hangs")
                elif (error := task.exception()) is not None:
                    record.complaints.append(f"client {client.plan.number}: {error!r}")
        if self.gateway.driver._consumers:
            record.complaints.append("I17: consumers are left behind")
        await self.gateway.aclose()


def run(plan: Plan) -> Record:
    """The record of a plan, the same every time."""
    application()  # made once for all stories, and by none of them
    loop = virtual_loop(plan.seed)
    with seeded(plan.seed):
        return loop.run(Simulation(plan, loop).run())


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Chance itself: session ids, epochs and the spread of waits come from the seed."""
    chance = random.Random(seed)
    state = random.getstate()
    random.seed(seed)
    with (
        mock.patch("secrets.token_urlsafe", lambda size: f"{chance.getrandbits(6 * size):x}"),
        mock.patch("secrets.token_hex", lambda size: f"{chance.getrandbits(8 * size):x}"),
    ):
        try:
            yield
        finally:
            random.setstate(state)
