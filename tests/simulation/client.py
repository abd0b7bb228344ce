"""A client: it connects, hears, and comes back with the last id it has whole. It judges nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.simulation.heard import Ear, Heard
from tests.simulation.line import Line, Socket
from tests.simulation.plan import ClientPlan
from tests.support.clocks.virtual_loop import VirtualLoop
from tidegate.app.http.problems import TRANSPORT_EXTENSION

Application = Callable[..., Any]


@dataclass(slots=True, eq=False)
class Visit:
    """One connection, from the request to its end, as client and socket saw it."""

    last_id: str
    began_ns: int
    gateway: int
    ear: Ear
    socket: Socket
    status: int | None = None
    heard: list[Heard] = field(default_factory=list)
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
        self.visits: list[Visit] = []
        self.is_done = False
        self.serving: list[asyncio.Task[Any]] = []
        self._loop = loop
        self._high_bytes = high_bytes
        self._chance = random.Random(plan.seed + 1)
        self._closed = asyncio.Event()

    # What the socket tells

    def started(self, status: int) -> None:
        """The answer's status."""
        self.visits[-1].status = status

    def heard(self, text: bytes) -> None:
        """Bytes arrived."""
        visit = self.visits[-1]
        visit.heard += visit.ear.hear(text, self._loop.now_ns)

    def closed(self, *, orderly: bool) -> None:
        """Nothing more will."""
        self.visits[-1].ended_ns, self.visits[-1].orderly = self._loop.now_ns, orderly
        self._closed.set()

    # What it does

    async def live(
        self, application: Callable[[], tuple[Application, int]], faults_end: int
    ) -> None:
        """Connect again and again."""
        await asyncio.sleep(self.plan.begins_ns / 1e9)
        last_id = ""
        for line_at in self.plan.lines(faults_end):
            app, gateway = application()
            self._visit(app, gateway, last_id, line_at(self._loop.now_ns))
            await self._closed.wait()
            visit = self.visits[-1]
            last_id = visit.ear.last_id
            if visit.status == 204 or (visit.heard and _is_final(visit.heard[-1])):
                self.is_done = True
                return
            wait_ms = visit.ear.retry_ms if visit.orderly else None
            await asyncio.sleep((wait_ms or self._chance.choice((1, 50, 500, 1_500))) / 1_000)

    def leave(self) -> None:
        """Hang up, and do not come back."""
        if self.visits and self.visits[-1].ended_ns is None:
            self.visits[-1].socket.hang_up()

    def heal(self) -> None:
        """From now on its line is a good one."""
        if self.visits:
            self.visits[-1].socket.heal()

    def _visit(self, app: Application, gateway: int, last_id: str, line: Line) -> None:
        self._closed.clear()
        socket = Socket(self._loop, line, self._high_bytes, self)
        self.visits.append(Visit(last_id, self._loop.now_ns, gateway, Ear(last_id), socket))
        serving = app(scope_of(self.plan, last_id, socket), socket.receive, socket.send)
        self.serving.append(self._loop.create_task(serving))


def _is_final(heard: Heard) -> bool:
    return heard.name == "goodbye" and not heard.document["reconnect"]


def scope_of(plan: ClientPlan, last_id: str, socket: Socket) -> dict[str, Any]:
    """The request as a server would hand it over."""
    wish = plan.wish
    given = {"options": wish.options, "command": wish.command, "format": wish.form}
    if wish.filter_text:
        given["filter"] = wish.filter_text
    path = f"/v1/topics/{wish.topic.name}/subscribe"
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
