"""A gateway without sockets, its sessions read by hand."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.support.servers import edge_settings
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.gateway import Gateway
from tidegate.app.names import TopicPattern
from tidegate.app.streams.attach import attach_existing
from tidegate.app.streams.cursor import EventId
from tidegate.app.streams.decisions import SubscriptionParameters, decide_target
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.session import Session
from tidegate.app.streams.subscribe_request import SubscribeRequest
from tidegate.app.topics.ingest import BodyForm
from tidegate.clients.sse import Event, Parser

PLENTY = 1 << 20
RETRY_MS = 1_000


class Room:
    """Short words for a gateway, its topics, and sessions in it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def topic(self, name: str = "px", key: tuple[str, ...] = ("/k",), **more: Any) -> None:
        document = json.dumps({"key": list(key), **more}).encode()
        await self.gateway.catalog.put(name, TopicDefinition.parse(document))

    async def say(self, *messages: object, topic: str = "px") -> None:
        entry = self.gateway.catalog.get(topic)
        body = b"\n".join(json.dumps(message).encode() for message in messages)
        checked = await self.gateway.ingest.check(entry, body, BodyForm(lined=True))
        await self.gateway.ingest.publish(entry, checked, None)

    def kept(self, **given: Any) -> Session:
        return self.gateway.sessions.open(kept=True, lasts=True, **given)

    def request(self, options: str = "", **values: str) -> SubscribeRequest:
        asked = SubscriptionParameters(options=options, **values)
        return SubscribeRequest.parse(asked, 4_096, many=True)

    def ask(
        self, session: Session, target: str | TopicPattern = "px", options: str = "", **values: str
    ) -> str:
        """Subscribe; the subscription's name."""
        wanted = self.request(options, **values).by(session.subject)
        decisions = decide_target(session.context, target, wanted)
        asked, _ = session.subscribe(target, wanted, decisions)
        return asked.name

    def read(self, session: Session, number: int | None = None) -> tuple[Reader, dict[str, Any]]:
        """A reader, and what its hello says, with its id."""
        seen = None if number is None else EventId(session.id, number)
        attachment = attach_existing(session, seen, RETRY_MS)
        attachment.finish()
        [event] = Parser().feed(attachment.hello)
        return attachment.reader, {**json.loads(event.text), "id": event.id}

    def take(self, reader: Reader) -> list[Event]:
        """Every event that there is to take now."""
        self.gateway.driver.engine.advance(self.gateway.driver.now())
        text = reader.consumer.notices()
        while outputs := reader.consumer.take(PLENTY):
            text += reader.encoded(outputs, RETRY_MS)
        return list(Parser().feed(text))

    def told(self, reader: Reader) -> list[str]:
        """The same by name, messages by their values."""
        return [_told(event) for event in self.take(reader)]


def _told(event: Event) -> str:
    document = json.loads(event.text)
    if event.name != "message":
        return " ".join(
            [event.name, *(str(document[n]) for n in ("sub", "mode", "reason") if n in document)]
        )
    values = [json.dumps(row["value"], separators=(",", ":")) for row in document["rows"]]
    return f"{document['sub']}: " + " ".join(values)


def number_in(hello: dict[str, Any]) -> int:
    """The number of the session's cursor in the id of a hello."""
    return int(hello["id"].rpartition("-")[2])


@contextlib.asynccontextmanager
async def room(clock: Callable[[], int] = time.monotonic_ns, **given: Any) -> AsyncIterator[Room]:
    """A gateway that is open."""
    gateway = Gateway.build(edge_settings(**given), clock=clock)
    await gateway.open()
    try:
        yield Room(gateway)
    finally:
        await gateway.aclose()
