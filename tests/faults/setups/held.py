"""What a gateway holds of a topic, read over HTTP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from tests.faults.checks.oracle import Entry, World
from tests.faults.checks.subscriber import entry_of, ident_of

JOURNAL_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Held:
    """A topic at rest: its epoch, its journal as far back as it goes, its state of the world."""

    epoch: str
    journal: Sequence[Entry]
    world: World

    @property
    def head(self) -> int:
        """The last offset."""
        return self.journal[-1].offset if self.journal else 0


async def held(http: httpx2.AsyncClient, topic: str) -> Held:
    """Read all that is held of a topic."""
    address = f"/v1/topics/{topic}"
    answer = await http.get(f"{address}/messages", params={"limit": JOURNAL_MAX})
    answer.raise_for_status()
    epoch = answer.headers["Tidegate-Bookmark"].rpartition("-")[0]
    journal = [entry_of(json.loads(line)) for line in answer.text.splitlines()]
    answer = await http.get(f"{address}/sow")
    answer.raise_for_status()
    rows = [json.loads(line) for line in answer.text.splitlines()]
    return Held(epoch, journal, {row["k"]: ident_of(row) for row in rows})


LONG, SHORT = "long", "short"
"""A topic whose whole journal is kept, and one that is trimmed to its newest messages."""

KEPT_MAX = {LONG: JOURNAL_MAX, SHORT: 200}


async def define(http: httpx2.AsyncClient) -> None:
    """Make both topics, if they are not there."""
    for topic, messages_max in KEPT_MAX.items():
        document = {"key": ["/k"], "history": {"messages": messages_max}}
        answer = await http.put(f"/v1/topics/{topic}", json=document)
        answer.raise_for_status()
