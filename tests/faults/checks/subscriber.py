"""Watchers: clients that stay subscribed through every outage, and remember what they were sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import httpx2

from tests.faults.checks.ledger import Ident, Ledger
from tests.faults.checks.oracle import Entry, World
from tidegate.clients.replica import Replica
from tidegate.clients.sse import Event, Parser

AGAIN_S = 0.05
SILENCE_S_MAX = 40.0
CLOCKS_S = 0.02  # by which two processes may read the time differently


class Seen(NamedTuple):
    """A row as it was sent: its op, its epoch, what it is, and when it came."""

    op: str
    epoch: str
    entry: Entry
    at_s: float = 0.0


@dataclass(slots=True, eq=False)
class Visit:
    """One connection.

    `last_id`: that it resumed after. `modes`: of every `resumed`. `status`: whether the source
    was said to be out, each time. `silent_epochs`: what began without a word, and does not
    continue the epoch before. `continued`: what does: epoch before, epoch, its first offset.
    """

    last_id: str
    modes: list[str] = field(default_factory=list)
    rows: list[Seen] = field(default_factory=list)
    status: list[bool] = field(default_factory=list)
    silent_epochs: list[str] = field(default_factory=list)
    continued: list[tuple[str, str, int]] = field(default_factory=list)
    goodbye: str = ""
    epoch: str = ""
    is_announced: bool = False

    def take_row(self, seen: Seen) -> None:
        """Note a row; an epoch that nobody announced is noted too.

        One that continues the epoch before exactly where the reader is needs no word.
        """
        if seen.epoch != self.epoch and not self.is_announced:
            offset = seen.entry.offset
            if offset == self.head + 1:
                self.continued.append((self.epoch, seen.epoch, offset))
            else:
                self.silent_epochs.append(seen.epoch)
        self.epoch, self.is_announced = seen.epoch, False
        self.rows.append(seen)

    @property
    def head(self) -> int:
        """The offset of the last row, or of the id after which it resumed."""
        return self.rows[-1].entry.offset if self.rows else offset_of(self.last_id)


class Subscriber:
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
        return max(offset_of(self.last_id), self.visits[-1].head if self.visits else 0)

    async def _visit(self, http: httpx2.AsyncClient) -> None:
        headers = {"Accept-Encoding": "identity"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
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
        document = json.loads(event.text)
        match event.name:
            case "hello":
                self.visits.append(visit)
                visit.epoch = epoch_of(visit.last_id)
                visit.is_announced = not visit.last_id
            case "resumed":
                visit.modes.append(document["mode"])
                visit.is_announced = True
            case "status":
                visit.status.append(document["stale_since"] is not None)
            case "goodbye":
                visit.goodbye = document["reason"]
            case "message":
                now = time.monotonic()
                for row in document.get("rows", [document]):
                    visit.take_row(Seen(row["op"], epoch_of(row["bookmark"]), entry_of(row), now))
        assert self.replica.take(event).is_whole, "a delta came for a record that is not held"
        self.last_id = event.id


def judge_visits(subscriber: Subscriber, epoch: str, journal: Sequence[Entry]) -> Iterator[str]:
    """What is wrong with what a subscriber of every message was sent in an epoch, in sentences.

    No gap, no repeat of what its id covered, nothing that the journal does not have.
    """
    at = {entry.offset: entry for entry in journal}
    ends = ends_of_history(subscriber, epoch)
    seen = 0
    for number, visit in enumerate(subscriber.visits):
        for silent in visit.silent_epochs:
            yield f"visit {number}: epoch {silent} began without a word"
        rows = [
            row.entry
            for row in visit.rows
            if row.op != "snapshot" and row.entry.offset <= ends.get(row.epoch, 0)
        ]
        same = offset_of(visit.last_id) <= ends.get(epoch_of(visit.last_id), -1)
        if number and same and visit.modes[:1] != ["replay"]:
            yield f"visit {number} resumed by {visit.modes or 'nothing'}, not by replay"
        for before, entry in pairwise(rows):
            if entry.offset != before.offset + 1:
                yield f"visit {number}: {entry.offset} follows {before.offset}"
        if rows and seen and rows[0].offset > seen + 1 and "snapshot" not in visit.modes:
            yield f"visit {number} begins at {rows[0].offset}, before it came up to {seen}"
        if rows and same and rows[0].offset <= offset_of(visit.last_id):
            yield f"visit {number} repeats {rows[0].offset}, resumed after {visit.last_id}"
        for entry in rows:
            if at.get(entry.offset) != entry:
                yield f"visit {number} was sent {entry}, and the journal has {at.get(entry.offset)}"
        seen = max([seen, *(entry.offset for entry in rows)])


def ends_of_history(subscriber: Subscriber, epoch: str) -> dict[str, float]:
    """The epochs that one continues, itself included, each with its last offset that it has."""
    ends = {epoch: math.inf}
    links = [link for visit in subscriber.visits for link in visit.continued]
    for before, after, first in reversed(links):
        if after in ends:
            ends[before] = max(ends.get(before, 0), first - 1)
    return ends


def judge_rate(subscriber: Subscriber, interval_s: float, ledger: Ledger) -> Iterator[str]:
    """Where a key came twice in less than an interval, whatever the machine does meanwhile.

    A row left the gateway after its message was sent, and before it came: from when the message of
    one was sent until the next came is never less than what lay between them. What a resume sends
    does not count, nor does the first flush after it.
    """
    sent_at_s = {(each.writer, each.sequence): each.sent_at_s for each in ledger.requests}
    for number, visit in enumerate(subscriber.visits):
        last: dict[str, float | None] = {}
        for row in (row for row in visit.rows if row.op != "snapshot"):
            name, ident = row.entry.key, row.entry.ident
            since_s = last.get(name)
            if since_s is not None and row.at_s - since_s < interval_s - CLOCKS_S:
                apart_s = row.at_s - since_s
                yield f"visit {number}: {name} came twice within {apart_s:.3f} s"
            if ident is None or name not in last:
                last[name] = None
            else:
                last[name] = sent_at_s[ident.writer, ident.sequence]


def epoch_of(bookmark: str) -> str:
    """Its epoch; empty where there is no bookmark."""
    return bookmark.rpartition("-")[0]


def offset_of(bookmark: str) -> int:
    """Its offset; 0 where there is no bookmark."""
    return int(bookmark.rpartition("-")[2] or 0)


def entry_of(envelope: dict[str, Any]) -> Entry:
    """An envelope as a row of the journal."""
    offset = offset_of(envelope["bookmark"])
    record = (envelope["key"] or [""])[0]  # a topic that was made without its definition has none
    return Entry(offset, record, None if envelope["op"] == "oof" else ident_of(envelope["value"]))


def ident_of(row: dict[str, Any]) -> Ident:
    """Who wrote a message."""
    return Ident(row["w"], row["n"], row["i"])


@contextlib.asynccontextmanager
async def subscribing(address: str, subscribers: Sequence[Subscriber]) -> AsyncIterator[None]:
    """Watchers that read meanwhile."""
    limits = httpx2.Limits(max_connections=None)
    reading = httpx2.Timeout(SILENCE_S_MAX)
    async with httpx2.AsyncClient(
        base_url=address, timeout=reading, limits=limits, trust_env=False
    ) as http:
        tasks = [asyncio.create_task(subscriber.watch(http)) for subscriber in subscribers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
