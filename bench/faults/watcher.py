"""Watchers: clients that stay subscribed through every outage, and remember what they were sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx2

from bench.faults.ledger import Ident
from bench.faults.oracle import Entry, World
from clients.replica import Replica
from clients.sse import Event, Parser

AGAIN_S = 0.02
SILENCE_S_MAX = 40.0


@dataclass(slots=True, eq=False)
class Visit:
    """One connection: the id that it resumed after, what the gateway said of that, its rows."""

    last_id: str
    mode: str = ""
    rows: list[tuple[str, Entry]] = field(default_factory=list)


class Watcher:
    """One subscription in format `envelope`, opened again and again with its last id.

    Attributes:
        replica: what it holds by now.
        visits: every connection that said `hello`.
    """

    def __init__(self, topic: str, options: str, command: str = "") -> None:
        self.topic = topic
        self.options = options
        self.replica = Replica()
        self.visits: list[Visit] = []
        self.last_id = ""
        self._params = {"options": options, "format": "envelope"}
        if command:
            self._params["command"] = command

    async def watch(self, http: httpx2.AsyncClient) -> None:
        """Read until cancelled."""
        while True:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                await self._visit(http)
            await asyncio.sleep(AGAIN_S)

    def world(self) -> World:
        """What it holds, as the state of the world."""
        return {row["k"]: ident_of(row) for row in self.replica.values.values()}

    @property
    def head(self) -> int:
        """The highest offset that it was sent, or resumed after."""
        last = int(self.last_id.rpartition("-")[2] or 0)
        rows = self.visits[-1].rows if self.visits else []
        return max(last, rows[-1][1].offset if rows else 0)

    async def _visit(self, http: httpx2.AsyncClient) -> None:
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        path = f"/v1/topics/{self.topic}/subscribe"
        async with http.stream("GET", path, params=self._params, headers=headers) as answer:
            if answer.status_code != httpx2.codes.OK:
                return
            visit = Visit(self.last_id)
            parser = Parser(self.last_id)
            async for chunk in answer.aiter_raw():
                for event in parser.feed(chunk):
                    self._take(visit, event)
                self.last_id = parser.last_id

    def _take(self, visit: Visit, event: Event) -> None:
        match event.name:
            case "hello":
                self.visits.append(visit)
            case "resumed":
                visit.mode = json.loads(event.text)["mode"]
            case "message":
                document = json.loads(event.text)
                rows = document.get("rows", [document])
                visit.rows += ((row["op"], entry_of(row)) for row in rows)
        self.replica.take(event)
        self.last_id = event.id


def judge_visits(watcher: Watcher, epoch: str, journal: Sequence[Entry]) -> Iterator[str]:
    """What is wrong with what a watcher of every message was sent, in sentences.

    No gap, no repeat of what its id covered, nothing that the journal does not have.
    """
    at = {entry.offset: entry for entry in journal}
    seen = 0
    for number, visit in enumerate(watcher.visits):
        rows = [entry for op, entry in visit.rows if op != "snapshot"]
        after_epoch, _, after = visit.last_id.rpartition("-")
        if number and after_epoch == epoch and visit.mode != "replay":
            yield f"visit {number} resumed by {visit.mode or 'nothing'}, not by replay"
        for before, entry in pairwise(rows):
            if entry.offset != before.offset + 1:
                yield f"visit {number}: {entry.offset} follows {before.offset}"
        if number and rows and rows[0].offset > seen + 1 and visit.mode != "snapshot":
            yield f"visit {number} begins at {rows[0].offset}, before it came up to {seen}"
        if rows and after_epoch == epoch and rows[0].offset <= int(after or 0):
            yield f"visit {number} repeats {rows[0].offset}, resumed after {after}"
        for entry in rows:
            if at.get(entry.offset) != entry:
                yield f"visit {number} was sent {entry}, and the journal has {at.get(entry.offset)}"
        seen = max([seen, *(entry.offset for entry in rows)])


def entry_of(envelope: dict[str, Any]) -> Entry:
    """An envelope as a row of the journal."""
    offset = int(envelope["bookmark"].rpartition("-")[2])
    key = envelope["key"][0]
    return Entry(offset, key, None if envelope["op"] == "oof" else ident_of(envelope["value"]))


def ident_of(row: dict[str, Any]) -> Ident:
    """Who wrote a message."""
    return Ident(row["w"], row["n"], row["i"])


@contextlib.asynccontextmanager
async def watching(address: str, watchers: Sequence[Watcher]) -> AsyncIterator[None]:
    """Watchers that read meanwhile."""
    limits = httpx2.Limits(max_connections=None)
    reading = httpx2.Timeout(SILENCE_S_MAX)
    async with httpx2.AsyncClient(
        base_url=address, timeout=reading, limits=limits, trust_env=False
    ) as http:
        tasks = [asyncio.create_task(watcher.watch(http)) for watcher in watchers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
