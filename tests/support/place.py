"""A catalog and an ingest on an engine, without HTTP around them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.support.servers import edge_settings
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import Appended, Producer, Store
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.derived import DerivedTopics
from tidegate.app.topics.ingest import BodyForm, Ingest
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.registry import CatalogTopic, Precondition
from tidegate.app.topics.writer import Writer
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.sessions.session import QueueLimits

LINES = BodyForm(lined=True)
MERGERS = Mergers()


class Place:
    """A catalog with what it stands on."""

    def __init__(
        self,
        store: Store | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        **given: Any,
    ) -> None:
        self.settings = edge_settings(**given)
        self.store = store or MemoryStore()
        engine = Engine(sessions_max=10, subscriptions_max=10)
        limits = QueueLimits(self.settings.queue_messages_max, self.settings.queue_bytes_max)
        self.driver = Driver(engine, limits, clock)
        self.writer = Writer(self.store, self.driver)
        self.leadership = Leadership(held=True)
        append_waiters = AppendWaiters(self.driver)
        self.derived_topics = DerivedTopics(
            self.driver, self.writer, append_waiters, self.leadership
        )
        self.catalog = Catalog(self.store, self.driver, self.derived_topics, self.settings)
        self.ingest = Ingest(self.writer, self.driver, self.settings)

    async def put(
        self, name: str, expected: Precondition | None = None, **document: object
    ) -> tuple[CatalogTopic, bool]:
        return await self.catalog.put(name, parsed(**document), expected)

    async def say(
        self,
        name: str,
        *messages: object,
        producer: Producer | None = None,
        form: BodyForm = LINES,
    ) -> Appended:
        entry = self.catalog.get(name)
        body = b"\n".join(json.dumps(message).encode() for message in messages)
        checked = await self.ingest.check(entry, body, form)
        return await self.ingest.publish(entry, checked, producer)

    def live(self, name: str) -> list[Frame]:
        """A topic's records, by last change."""
        sow = self.driver.engine.topic(name).sow
        assert sow is not None
        return sow.board.live()

    def sow(self, name: str) -> list[Any]:
        """Their values."""
        return [json.loads(frame.payload) for frame in self.live(name)]


async def keyed(**given: Any) -> Place:
    """A place with a topic px whose key is /k."""
    place = Place(**given)
    await place.put("px", key=["/k"])
    return place


def parsed(**document: object) -> TopicDefinition:
    return TopicDefinition.parse(json.dumps(document).encode(), MERGERS)
