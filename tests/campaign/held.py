"""What a gateway holds at the end, read over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.campaign.ledger import Ident
from tests.campaign.lineage import Position
from tests.campaign.reader import digest_of
from tests.campaign.writer import UNAVAILABLE

PAGE = 50_000
UNAVAILABLE_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One offset of a journal; without `ident` it is the removal of what `value` says."""

    offset: int
    key: str
    ident: Ident | None
    value: Mapping[str, Any] | None

    @property
    def digest(self) -> str:
        """Stand for the whole value."""
        return digest_of(self.value or {})


@dataclass(frozen=True, slots=True)
class Held:
    """A topic at rest, at one gateway."""

    head: Position
    continues: Mapping[str, int]
    journal: Sequence[Entry]
    world: Mapping[str, Mapping[str, Any]]

    @property
    def first(self) -> int:
        """The oldest offset that is kept."""
        return self.journal[0].offset if self.journal else self.head.offset + 1


async def held(http: httpx2.AsyncClient, topic: str) -> Held:
    """Read all that is held of a topic."""
    address = f"/v1/topics/{topic}"
    document = (await _get(http, address, {})).json()
    journal, after = [], "epoch"
    while True:
        answer = await _get(http, f"{address}/messages", {"from": after, "limit": str(PAGE)})
        page = [_entry(json.loads(line)) for line in answer.text.splitlines()]
        after = answer.headers["Tidegate-Bookmark"]
        journal += page
        if not page:
            break
    answer = await _get(http, f"{address}/sow", {})
    rows = [json.loads(line) for line in answer.text.splitlines()]
    world = {row["k"]: row for row in rows}
    return Held(Position.of(after), document["continues"], journal, world)


async def definitions(http: httpx2.AsyncClient) -> dict[str, tuple[str, str]]:
    """Return description and epoch of every topic."""
    found, path = {}, "/v1/topics?limit=1000"
    for listed in (await _get(http, path, {})).json()["topics"]:
        name = listed["topic"]
        document = (await _get(http, f"/v1/topics/{name}", {})).json()
        found[name] = document["description"], document["epoch"]
    return found


async def replayed(http: httpx2.AsyncClient, topic: str, after: Position) -> Sequence[int] | None:
    """Return the offsets of the journal after a bookmark; None where that is refused."""
    params = {"from": str(after), "limit": str(PAGE)}
    try:
        answer = await _get(http, f"/v1/topics/{topic}/messages", params)
    except httpx2.HTTPStatusError as error:
        if error.response.status_code == httpx2.codes.GONE:
            return None
        raise
    return [_entry(json.loads(line)).offset for line in answer.text.splitlines()]


def _entry(row: Mapping[str, Any]) -> Entry:
    offset = Position.of(row["bookmark"]).offset
    ident = None if row["op"] == "oof" else Ident.of(row["value"])
    return Entry(offset, row["key"][0], ident, row["value"])


async def _get(http: httpx2.AsyncClient, path: str, params: Mapping[str, str]) -> httpx2.Response:
    """Ask until the gateway can answer: Redis may have begun another life just now.

    Raises:
        HTTPStatusError: it cannot for long, or refuses.
    """
    until_s = time.monotonic() + UNAVAILABLE_S_MAX
    while True:
        answer = await http.get(path, params=params)
        if answer.status_code != UNAVAILABLE or time.monotonic() > until_s:
            answer.raise_for_status()
            return answer
        await asyncio.sleep(0.2)
