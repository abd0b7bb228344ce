"""Readers: clients that subscribe at one gateway after another, and remember all they were sent."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx2

from tests.campaign.ledger import Ident
from tests.campaign.lineage import Position
from tidegate.clients.replica import RecordId, Replica
from tidegate.clients.sse import Event, Parser

AGAIN_S = 0.2
SILENCE_S_MAX = 4.0  # four heartbeats
SILENT = httpx2.Timeout(SILENCE_S_MAX)


class Return(StrEnum):
    """How a reader says where it was when it comes again."""

    BY_ID = "by id"
    BY_ROW = "by row"
    """The bookmark of the last row: nothing may then be repeated, not even of a broken replay."""
    ANEW = "anew"


class What(StrEnum):
    """What a reader notes."""

    VISIT = "visit"
    RESUMED = "resumed"
    GROUP_BEGIN = "group begin"
    GROUP_END = "group end"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that a reader was sent, or its return.

    Attributes:
        at: of a row its newest message; of a visit the place after which it resumes; of a group's
            end the id.
        mode: of a `resumed`; of a row its op.
        ident: of a row that is no removal.
        digest: of the whole value that the reader holds after the row.
        reason: of a removal.
    """

    what: What
    at_s: float
    gateway: int
    at: Position
    mode: str = ""
    key: str = ""
    ident: Ident | None = None
    digest: str = ""
    reason: str = ""


class Reader:
    """One subscription, made again at another gateway whenever its stream ends or is silent."""

    def __init__(
        self,
        name: str,
        topic: str,
        options: str,
        command: str,
        returns: Return,
        seed: int,
        filter_text: str = "",
    ) -> None:
        self.name = name
        self.topic = topic
        self.returns = returns
        self.filter_text = filter_text
        self.seen: list[Seen] = []
        self.wrong: list[str] = []
        self.replica = Replica()
        self._options = options
        self._params = {"format": "envelope", "command": command}
        if filter_text:
            self._params["filter"] = filter_text
        self._place = ""
        self._in_group = False
        self._chance = random.Random(f"{seed} {name}")
        self._at = 0

    @property
    def is_of_every_message(self) -> bool:
        """Whether nothing is conflated."""
        return "conflation=none" in self._options

    @property
    def sees_removals(self) -> bool:
        """Whether it is sent removals."""
        return "oof" in self._options

    def world(self) -> dict[str, str]:
        """Return what it holds: digests by key."""
        return {row["k"]: digest_of(row) for row in self.replica.values.values()}

    async def read(self, gateways: Sequence[httpx2.AsyncClient]) -> None:
        """Read until cancelled."""
        self._at = self._chance.randrange(len(gateways))
        while True:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                await self._visit(gateways[self._at])
            await asyncio.sleep(AGAIN_S * self._chance.random())
            if self._chance.random() < 0.7:
                self._at = self._chance.randrange(len(gateways))

    async def _visit(self, gateway: httpx2.AsyncClient) -> None:
        headers = {"Accept-Encoding": "identity"}
        options = self._options
        if self.returns is Return.BY_ROW:
            options += f",bookmark={self._place or 'epoch'}"
        elif self._place:
            headers["Last-Event-ID"] = self._place
        path = f"/v1/topics/{self.topic}/subscribe"
        params = {**self._params, "options": options}
        # A stream may live long: now and then the reader leaves in the middle of it.
        async with asyncio.timeout(self._chance.expovariate(1 / 10)):
            async with gateway.stream(
                "GET", path, params=params, headers=headers, timeout=SILENT
            ) as answer:
                if answer.status_code != httpx2.codes.OK:
                    if answer.status_code not in {404, 503}:
                        await answer.aread()
                        self.wrong.append(f"{answer.status_code} {answer.text[:300]}")
                    return
                parser = Parser(self._place)
                async for chunk in answer.aiter_raw():
                    for event in parser.feed(chunk):
                        self._take(event)

    def _note(self, what: What, at: Position, **more: Any) -> None:
        self.seen.append(Seen(what, time.monotonic(), self._at, at, **more))

    def _take(self, event: Event) -> None:
        document = json.loads(event.text) if event.text else {}
        match event.name:
            case "hello":
                self._in_group = False
                if self.returns is Return.ANEW:
                    self.replica = Replica()
                self._note(What.VISIT, Position.of(self._place))
            case "resumed":
                self._note(What.RESUMED, Position.of(self._place), mode=document["mode"])
            case "group_begin":
                self._in_group = True
                self._note(What.GROUP_BEGIN, Position.of(self._place))
            case "group_end":
                self._in_group = False
                self._note(What.GROUP_END, Position.of(event.id))
                # The rows of a group are in the order of their keys' last change, and up to its id.
                self._place = "" if self.returns is Return.ANEW else event.id
        if not self.replica.take(event).is_whole:
            self.wrong.append(f"a delta for a record that is not held: {event.text[:200]}")
        if event.name == "message":
            for row in document.get("rows", [document]):
                self._take_row(row)
        if self.returns is Return.BY_ID and event.id:
            self._place = event.id

    def _take_row(self, row: Mapping[str, Any]) -> None:
        at = Position.of(row.get("last") or row["bookmark"])
        key = row["key"][0]
        if self.returns is Return.BY_ROW and not self._in_group:
            self._place = row["bookmark"]
        if row["op"] == "oof":
            self._note(What.ROW, at, mode="oof", key=key, reason=row["reason"])
            return
        value = self.replica.rows[RecordId(self.topic, json.dumps([key]))].value
        digest = digest_of(value)
        self._note(What.ROW, at, mode=row["op"], key=key, ident=Ident.of(value), digest=digest)


def digest_of(value: Mapping[str, Any]) -> str:
    """Return what stands for a whole record."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
