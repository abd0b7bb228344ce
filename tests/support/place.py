"""A catalog and an ingest on an engine, without HTTP around them."""

from __future__ import annotations

import json
from typing import Any

from app.catalog import Catalog, Entry, Precondition
from app.driver import Driver
from app.ingest import Ingest
from app.memory_store import MemoryStore
from app.store import Appended, Producer, Store
from app.topic_document import TopicDocument
from conflation.engine import Engine
from conflation.session import QueueLimits
from tests.support.servers import edge_settings


class Place:
    """A catalog with what it stands on."""

    def __init__(self, store: Store | None = None, **given: Any) -> None:
        self.settings = edge_settings(**given)
        self.store = store or MemoryStore()
        engine = Engine(sessions_max=10, subscriptions_max=10)
        limits = QueueLimits(self.settings.queue_messages_max, self.settings.queue_bytes_max)
        self.driver = Driver(engine, limits)
        self.catalog = Catalog(self.store, self.driver, self.settings)
        self.ingest = Ingest(self.store, self.driver, self.settings)

    async def put(
        self, name: str, expected: Precondition | None = None, **document: object
    ) -> tuple[Entry, bool]:
        return await self.catalog.put(name, parsed(**document), expected)

    async def say(self, name: str, *messages: object, producer: Producer | None = None) -> Appended:
        entry = self.catalog.get(name)
        body = b"\n".join(json.dumps(message).encode() for message in messages)
        checked = await self.ingest.check(entry, body, lined=True)
        return await self.ingest.publish(entry, checked, producer)


def parsed(**document: object) -> TopicDocument:
    return TopicDocument.parse(json.dumps(document).encode())
