"""A client: it connects, receives, and reconnects with the last complete id. It judges nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.simulation.events import EventParser, ReceivedEvent
from tests.simulation.link import Link, Socket
from tests.simulation.plan import ClientPlan
from tests.support.clocks.virtual_loop import VirtualLoop
from tidegate.app.http.scope import TRANSPORT_EXTENSION

Application = Callable[..., Any]


@dataclass(slots=True, eq=False)
class Connection:
    """One connection, from the request to its end, as client and socket saw it."""

    last_id: str
    began_ns: int
    gateway: int
    parser: EventParser
    socket: Socket
    status: int | None = None
    received: list[ReceivedEvent] = field(default_factory=list)
    ended_ns: int | None = None
    orderly: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self.ended_ns is None and self.status == 200


class Client:
    """One subscriber that never gives up, unless it is told that there is nothing to come for."""

    def __init__(self, plan: ClientPlan, loop: VirtualLoop, high_bytes: int) -> None:
        self.plan = plan
        self.connections: list[Connection] = []
        self.is_done = False
        self.serving: list[asyncio.Task[Any]] = []
        self._loop = loop
        self._high_bytes = high_bytes
        self._chance = random.Random(plan.seed + 1)
        self._closed = asyncio.Event()

    # What the socket tells

    def started(self, status: int) -> None:
        """The answer's status."""
        self.connections[-1].status = status

    def received(self, text: bytes) -> None:
        """Bytes arrived."""
        connection = self.connections[-1]
        connection.received += connection.parser.feed(text, self._loop.now_ns)

    def closed(self, *, orderly: bool) -> None:
        """Nothing more will."""
        self.connections[-1].ended_ns, self.connections[-1].orderly = self._loop.now_ns, orderly
        self._closed.set()

    # What it does

    async def live(
        self, application: Callable[[], tuple[Application, int]], faults_end: int
    ) -> None:
        """Connect again and again."""
        await asyncio.sleep(self.plan.begins_ns / 1e9)
        last_id = ""
        for line_at in self.plan.links(faults_end):
            app, gateway = application()
            self._connection(app, gateway, last_id, line_at(self._loop.now_ns))
            await self._closed.wait()
            connection = self.connections[-1]
            last_id = connection.parser.last_id
            if connection.status == 204 or (
                connection.received and _is_final(connection.received[-1])
            ):
                self.is_done = True
                return
            wait_ms = connection.parser.retry_ms if connection.orderly else None
            await asyncio.sleep((wait_ms or self._chance.choice((1, 50, 500, 1_500))) / 1_000)

    def leave(self) -> None:
        """Hang up, and do not come back."""
        if self.connections and self.connections[-1].ended_ns is None:
            self.connections[-1].socket.hang_up()

    def heal(self) -> None:
        """From now on its link is a good one."""
        if self.connections:
            self.connections[-1].socket.heal()

    def _connection(self, app: Application, gateway: int, last_id: str, link: Link) -> None:
        self._closed.clear()
        socket = Socket(self._loop, link, self._high_bytes, self)
        self.connections.append(
            Connection(last_id, self._loop.now_ns, gateway, EventParser(last_id), socket)
        )
        serving = app(scope_of(self.plan, last_id, socket), socket.receive, socket.send)
        self.serving.append(self._loop.create_task(serving))


def _is_final(received: ReceivedEvent) -> bool:
    return received.name == "goodbye" and not received.document["reconnect"]


def scope_of(plan: ClientPlan, last_id: str, socket: Socket) -> dict[str, Any]:
    """The request as a server would hand it over."""
    subscription = plan.subscription
    given = {
        "options": subscription.options,
        "command": subscription.command,
        "format": subscription.form,
    }
    if subscription.filter_text:
        given["filter"] = subscription.filter_text
    path = f"/v1/topics/{subscription.topic.name}/subscribe"
    headers = [(b"host", b"localhost"), (b"accept", b"text/event-stream")]
    if last_id:
        headers.append((b"last-event-id", last_id.encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(given).encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50_000 + plan.number),
        "server": ("127.0.0.1", 8080),
        "extensions": {TRANSPORT_EXTENSION: socket},
    }
